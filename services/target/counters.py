"""What a sequence's speculation brought, counted over kept tokens; and what the rounds of all took.

generated = first + accepted + correction + bonus + plain, and every round that verified a draft ends in a correction or
a bonus unless a stop cut it inside its accepted part.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

ORIGINS = ("first", "accepted", "correction", "bonus", "plain")


@dataclass(slots=True)
class ModeCounts:
    """Rounds of one drafter. Element i of `accepted_per_position` counts rounds that kept more than i drafts."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int) -> None:
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        missing = drafted - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position in range(accepted):
            self.accepted_per_position[position] += 1


@dataclass(frozen=True, slots=True)
class Switch:
    """The drafter changed after `at` generated tokens; `reason` is None when it is what was asked for again."""

    at: int
    origin: str
    to: str
    reason: str | None


@dataclass(slots=True)
class Counters:
    """`by_origin` counts kept tokens, `by_mode` the rounds that verified at least one draft."""

    by_origin: Counter[str] = field(default_factory=Counter)
    by_mode: dict[str, ModeCounts] = field(default_factory=dict)
    switches: list[Switch] = field(default_factory=list)

    @property
    def generated(self) -> int:
        return self.by_origin.total()

    def record(self, mode: str, drafted: int, origins: Sequence[str]) -> None:
        """Count one step: `drafted` proposals verified in `mode`, and the origins of the tokens that were kept."""
        self.by_origin.update(origins)
        if drafted:
            self.by_mode.setdefault(mode, ModeCounts()).add(drafted, origins.count("accepted"))

    def copy(self) -> "Counters":
        """An independent copy, for a reader on another thread."""
        by_mode = {
            mode: replace(counts, accepted_per_position=counts.accepted_per_position.copy())
            for mode, counts in self.by_mode.items()
        }
        return Counters(self.by_origin.copy(), by_mode, self.switches.copy())

    def total(self, name: str) -> int:
        """Sum of `rounds`, `drafted` or `accepted` over the modes."""
        return sum(getattr(counts, name) for counts in self.by_mode.values())


@dataclass(slots=True)
class Spent:
    """Seconds of `rounds`: waiting for drafts, and in the model. `skipped` counts, by the policy's reason, rounds of
    sequences that wanted drafts and could not ask for any."""

    rounds: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
