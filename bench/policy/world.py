"""A target and drafters whose costs and acceptance are written down: everything a policy has to find out.

Luck belongs to the place in the text, not to the policy: a draft is right at a position for every policy or for none
that drafts equally far. So two policies differ by what they choose alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from tandem.v1.drafter_pb2 import DrafterDescription

Workload = str


@dataclass(frozen=True, slots=True)
class Drafter:
    """`rates`: by workload, the probability that a draft is right if those before it were; it falls by `fade` a place.
    `proposes`: by workload, how often it has anything to say. `long`: what is left of the rates at 32k of context.
    `spread`: how much easier some tokens are than others; at 0 all are equal, and the drafter says nothing of them."""

    mode: str
    pass_s: float
    rates: Mapping[Workload, float]
    draft_s: float = 0.0
    sequence_s: float = 0.0
    most: int = 15
    usual: int = 7
    fade: float = 0.98
    proposes: Mapping[Workload, float] = field(default_factory=dict)
    long: float = 1.0
    spread: float = 0.0

    def seconds(self, sequences: int, length: int) -> float:
        return self.pass_s + self.draft_s * length + self.sequence_s * (sequences - 1)

    def rate(self, workload: Workload, place: int, context: int) -> float:
        tired = 1 - (1 - self.long) * min(context / 32768, 1.0)
        return self.rates[workload] * self.fade**place * tired

    def description(self) -> DrafterDescription:
        return DrafterDescription(name=self.mode, max_draft_tokens=self.most, default_draft_tokens=self.usual)


@dataclass(frozen=True, slots=True)
class Target:
    """A forward takes `base_s`, `row_s` for every row past `free_rows`, and `position_s` for each position it reads."""

    base_s: float
    row_s: float
    free_rows: int = 1
    position_s: float = 0.0

    def seconds(self, rows: float, context: int) -> float:
        return self.base_s + self.row_s * max(rows - self.free_rows, 0) + self.position_s * context


@dataclass(slots=True)
class Text:
    """One request: `prompt` tokens, then `length` to generate; `workload(i)` is what token i is like."""

    number: int
    prompt: int
    length: int
    workload: Callable[[int], Workload]
    done: int = 1

    @property
    def context(self) -> int:
        return self.prompt + self.done

    def proposed(self, drafter: Drafter, length: int) -> int:
        """Drafts that come. Whether a place has anything to copy from stays so for some tokens."""
        often = drafter.proposes.get(self.workload(self.done), 1.0)
        return length if _luck(self.number, self.done // 12, drafter.mode) < often else 0

    def accepted(self, drafter: Drafter, drafted: int) -> int:
        for place in range(drafted):
            position = self.done + place
            if _luck(self.number, position) >= self._rate(drafter, place):
                return place
        return drafted

    def _rate(self, drafter: Drafter, place: int) -> float:
        position = self.done + place
        rate = drafter.rate(self.workload(position), place, self.context)
        if drafter.spread:
            ease = _luck(self.number, position, "ease")
            rate = _shifted(rate, drafter.spread * math.log((ease + 1e-9) / (1 - ease + 1e-9)))
        return rate

    def confidences(self, drafter: Drafter, came: int) -> Sequence[float]:
        """What the drafter says of its drafts: the better the likelier, but far too sure of itself, and not always."""
        if not drafter.spread:
            return ()
        said = []
        for place in range(came):
            off = _luck(self.number, self.done + place, drafter.mode, "off")
            said.append(_shifted(self._rate(drafter, place), 1.5 + math.log((off + 1e-9) / (1 - off + 1e-9)) / 3))
        return said

    def survival(self, drafter: Drafter, most: int) -> Sequence[float]:
        """What a policy that knew everything would expect."""
        often = drafter.proposes.get(self.workload(self.done), 1.0)
        rates = [self._rate(drafter, place) for place in range(most)]
        return [often * math.prod(rates[: place + 1]) for place in range(most)]


def _shifted(chance: float, by: float) -> float:
    """A probability with `by` more in its log-odds."""
    odds = chance / max(1 - chance, 1e-9) * math.exp(by)
    return odds / (1 + odds)


def _luck(*what: object) -> float:
    """A number in [0, 1) that is always the same for the same things."""
    return int.from_bytes(blake2b(repr(what).encode(), digest_size=6).digest()) / 2**48
