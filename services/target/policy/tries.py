"""When to try again what is not believed to be the best: seldom, and ever more seldom while it brings nothing."""

from dataclasses import dataclass

from services.target.policy.gate import GateRules


@dataclass(slots=True)
class Tries:
    """One drafter of one sequence: it drafted last in round `last`, and is tried `interval` rounds later. Rounds are
    those of the sequence."""

    interval: int
    last: int = 0

    def due(self, now: int) -> bool:
        return now - self.last >= self.interval

    def may_join(self, now: int) -> bool:
        """Near enough to go along with another sequence that tries the same: the wait for drafts is shared."""
        return 2 * (now - self.last) >= self.interval

    def tried(self, rules: GateRules, *, known: bool) -> None:
        """It was tried, and is not used for that. What is hardly known yet does not back off for a little bad luck."""
        self.interval = min(2 * self.interval, rules.most) if known else self.interval

    def used(self, rules: GateRules) -> None:
        """It is what is believed to be the best."""
        self.interval = rules.first
