"""When to try again what is not believed to be the best: seldom, and ever more seldom while it brings nothing."""

from dataclasses import dataclass

from services.target.policy.gate import GateRules


@dataclass(slots=True)
class Tries:
    """One drafter that one sequence does not use: `waited` rounds of the `interval` to the next try."""

    interval: int
    waited: int = 0

    @property
    def due(self) -> bool:
        return self.waited >= self.interval

    @property
    def may_join(self) -> bool:
        """Near enough to go along with another sequence that tries the same: the wait for drafts is shared."""
        return 2 * self.waited >= self.interval

    def tried(self, rules: GateRules, *, known: bool) -> None:
        """It was tried, and is not used for that. What is hardly known yet does not back off for a little bad luck."""
        self.waited, self.interval = 0, min(2 * self.interval, rules.most) if known else self.interval

    def used(self, rules: GateRules) -> None:
        """It is what is believed to be the best."""
        self.waited, self.interval = 0, rules.first
