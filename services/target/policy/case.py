"""One decoding sequence of a round that is planned, and what was chosen for all of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from services.target.policy.acceptance import Prior
from services.target.policy.allot import Allotment, Choice
from services.target.policy.decision import View
from services.target.policy.resolve import Speed
from services.target.policy.rules import PolicyRules
from services.target.policy.steered import Steered

FIRST_DRAFTS = 3
"""Drafts of a drafter of which little is known: what longer ones would take is not known either."""


@dataclass(frozen=True, slots=True)
class Case:
    """`most`: the drafters that could draft for it now, best liked first, and the longest draft of each."""

    view: View
    state: Steered
    most: Mapping[str, int]

    @property
    def strict(self) -> bool:
        return self.view.speculation.strict

    def choices(
        self, priors: Mapping[str, Prior], rules: PolicyRules, modes: Sequence[str], new: Collection[str]
    ) -> dict[str, Choice]:
        """What those of `modes` would bring that are not hopeless for it. The `new` begin with short drafts."""
        return {
            mode: self.state.choice(
                mode, min(most, FIRST_DRAFTS) if mode in new else most, priors, least=int(self.strict)
            )
            for mode, most in self.most.items()
            if self.strict or (mode in modes and not self.state.hopeless(mode, rules))
        }


@dataclass(frozen=True, slots=True)
class Chosen:
    """By case: the drafter or None, why the others rest, and the rule that decided. `allotment` is what is expected of
    the round. `trial_rate`: something is tried, and this many tokens a second are given up for it. `asks`: how
    far to ask, where that is further than what is worth it on average."""

    modes: Sequence[str | None]
    reasons: Sequence[str]
    because: Sequence[str]
    allotment: Allotment
    trial_rate: float | None = None
    asks: Sequence[int] = ()

    def speeds(self, index: int, case: Case) -> Mapping[str, Speed]:
        """What the choice says of each drafter that could draft for the case."""
        length, used = (self.asks or self.allotment.lengths)[index], self.modes[index]
        return {
            mode: Speed(length, gain=1.0, because=self.because[index])
            if mode == used
            else Speed(0, self.reasons[index], because=self.because[index])
            for mode in case.most
        }

    def of(self, stay: Sequence[int]) -> "Chosen":
        """What was chosen for the cases of these indices."""
        lengths = tuple(self.allotment.lengths[index] for index in stay)
        return replace(
            self,
            modes=[self.modes[index] for index in stay],
            reasons=[self.reasons[index] for index in stay],
            because=[self.because[index] for index in stay],
            allotment=replace(self.allotment, lengths=lengths),
            asks=[self.asks[index] for index in stay] if self.asks else (),
        )

    def and_also(self, mode: str | None, length: int, because: str) -> "Chosen":
        """The same with one more case, which drafts `length` tokens with `mode`, or rests."""
        return replace(
            self,
            modes=[*self.modes, mode],
            reasons=[*self.reasons, "gate"],
            because=[*self.because, because],
            allotment=replace(self.allotment, lengths=(*self.allotment.lengths, length)),
            asks=[*self.asks, length] if self.asks else (),
        )
