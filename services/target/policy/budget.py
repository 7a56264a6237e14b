"""What finding out may cost: a small part of what a request takes anyway.

A round that is run to learn something, not because it is believed to be the best, can lose time. What it lost is
written down here, and when too much was lost nothing more is tried.
"""

from dataclasses import dataclass

AHEAD = 512
"""Tokens still to come that count as if they had been spent: else nothing could be tried at the beginning."""


@dataclass(slots=True)
class Budget:
    """Of one request: `elapsed_s` in rounds, of which `lost_s` were lost by trying. `share` of all may be lost."""

    share: float
    elapsed_s: float = 0.0
    lost_s: float = 0.0

    def room(self, remaining: int, plain_s: float) -> float:
        """Seconds that may still be lost, when a token takes `plain_s` without drafts."""
        return self.share * (self.elapsed_s + min(remaining, AHEAD) * plain_s) - self.lost_s

    def spend(self, seconds: float, lost_s: float = 0.0) -> None:
        """A round took `seconds`; tried something, and lost `lost_s` of them by it (at least 0)."""
        self.elapsed_s += seconds
        self.lost_s += max(lost_s, 0.0)
