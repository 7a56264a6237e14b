"""What the controller keeps of one sequence, from its first round to its end."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from services.target.policy.acceptance import Acceptance, Prior
from services.target.policy.allot import Choice
from services.target.policy.bands import Band, place
from services.target.policy.budget import Budget
from services.target.policy.decision import View
from services.target.policy.rules import PolicyRules
from services.target.policy.tries import Tries

STICKY = 0.99
"""A drafter that would be new to a sequence must be better by this much: what is as good is left as it is."""


@dataclass(slots=True)
class Steered:
    """`mode` is what it uses until further notice, `reason` why that is not what was asked for. Drafters `able`
    to draft for it when its plan was made. `tries`: by mode, when it may be tried again while it is not used. It
    decoded in `rounds` so far. `greedy`: it takes the likeliest tokens. `free`: what drafts is up to the policy."""

    budget: Budget
    band: Band | None = None
    mode: str | None = None
    reason: str | None = None
    able: Collection[str] = ()
    rounds: int = 0
    greedy: bool = True
    free: bool = True
    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    tries: dict[str, Tries] = field(default_factory=dict)

    def placed(self, view: View, rules: PolicyRules) -> Band | None:
        """The band of its length now; a request's own bands go before the configured ones."""
        bands = rules.bands if view.speculation.bands is None else view.speculation.bands
        self.band = place(bands, view.context, self.band, rules.hysteresis)
        return self.band

    def of(self, mode: str, priors: Mapping[str, Prior]) -> Acceptance:
        """As it is now, after the rounds that did not use it."""
        if mode not in self.acceptance:
            self.acceptance[mode] = Acceptance(priors[mode], self.rounds)
        known = self.acceptance[mode]
        known.relax(self.rounds)
        return known

    def drafted(self, mode: str, rules: PolicyRules, *, known: bool) -> None:
        """It was used or tried in the round that is over."""
        tries = self.tries[mode]
        tries.last = self.rounds
        if mode == self.mode:
            tries.used(rules.gate)
        else:
            tries.tried(rules.gate, known=known)
        if mode in self.acceptance:
            self.acceptance[mode].current = self.rounds

    def choice(self, mode: str, most: int, priors: Mapping[str, Prior], *, least: int = 0) -> Choice:
        """What up to `most` drafts of `mode` would bring."""
        known = self.of(mode, priors)
        gains = known.survival(most)
        if mode != self.mode and self.mode is not None:
            gains = [STICKY * gain for gain in gains]
        return Choice(mode, gains, known.speaks, min(least, len(gains)))

    def hopeless(self, mode: str, rules: PolicyRules) -> bool:
        """Its drafts are hardly ever right."""
        known = self.acceptance.get(mode)
        return (
            known is not None
            and known.tried >= rules.acceptance_drafts
            and known.accepted < rules.acceptance_floor * known.tried
        )
