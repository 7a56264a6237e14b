"""What drafts came to, from the reports that the target sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from tandem.v1.types_pb2 import SpeculationReport

from services.gateway.report import summed
from services.wire.codec import MODES


@dataclass(frozen=True, slots=True)
class Accepted:
    """`rounds` that verified at least one draft, of which element i of `beyond` kept more than i drafts. `used`: rounds
    by who drafted; `plain` for nobody."""

    rounds: int
    drafted: int
    accepted: int
    beyond: Sequence[int]
    used: Mapping[str, int]

    @classmethod
    def of(cls, reports: Sequence[SpeculationReport]) -> "Accepted":
        """All together; the requests asked for `stats`."""
        report = summed(reports)
        beyond = [
            sum(counts) for counts in zip_longest(*(mode.accepted_per_position for mode in report.by_mode), fillvalue=0)
        ]
        used = {MODES.name(mode.mode): mode.rounds for mode in report.by_mode} | {"plain": report.by_origin.plain}
        return cls(report.rounds, report.drafted, report.accepted, beyond, {who: n for who, n in used.items() if n})

    @property
    def mean_length(self) -> float | None:
        """Tokens that a round with drafts brought: those it kept of them, and one."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    @property
    def by_position(self) -> list[float]:
        """Element i: the part of the rounds with drafts that kept more than i of them."""
        return [count / self.rounds for count in self.beyond]

    @property
    def histogram(self) -> list[int]:
        """Element i: rounds with drafts that kept exactly i of them."""
        return [more - still for more, still in pairwise([self.rounds, *self.beyond, 0])] if self.rounds else []

    @property
    def shares(self) -> dict[str, float]:
        """`used` as parts of all rounds after the first token."""
        return {who: rounds / sum(self.used.values()) for who, rounds in self.used.items()}
