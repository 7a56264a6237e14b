"""How likely each further draft is kept: by drafter and position, for all sequences and for one.

A sequence starts from what its drafter came to elsewhere, and soon speaks for itself. Counts fade, because texts change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

POSITIONS = 15
HOPE = 0.8
"""What a drafter that was never heard is believed to do at each position: much, so that it is tried."""


@dataclass(slots=True)
class Tally:
    """Of `tried[i]` drafts i whose forerunners were all kept, `won[i]` were kept too. Both fade by `fade` a round."""

    fade: float
    tried: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)
    won: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)

    def add(self, asked: int, accepted: int) -> None:
        """A draft that was asked for and did not come is one that was not kept."""
        for i in range(POSITIONS):
            self.tried[i] *= self.fade
            self.won[i] *= self.fade
        for i in range(min(accepted + 1, asked)):
            self.tried[i] += 1
            self.won[i] += i < accepted


class Prior:
    """One drafter over all sequences: what a new one may expect."""

    def __init__(self) -> None:
        self.tally = Tally(fade=0.998)

    def rates(self) -> list[float]:
        """By position. Far positions, seldom reached, lean on the ones before them."""
        rates, before = [], HOPE
        for tried, won in zip(self.tally.tried, self.tally.won, strict=True):
            before = (won + 2 * before) / (tried + 2)
            rates.append(before)
        return rates


class Acceptance:
    """One drafter for one sequence."""

    def __init__(self, prior: Prior) -> None:
        self.drafted = self.accepted = self.asked = 0
        self._prior = prior
        self._tally = Tally(fade=0.95)
        self._filled = (0.0, 0.0)  # drafts that came, and that were asked for; fading
        self._survival: Sequence[float] | None = None

    def record(self, asked: int, drafted: int, accepted: int) -> None:
        self.asked, self.drafted, self.accepted = self.asked + asked, self.drafted + drafted, self.accepted + accepted
        self._tally.add(asked, accepted)
        self._prior.tally.add(asked, accepted)
        came, wanted = self._filled
        self._filled = (0.95 * came + drafted, 0.95 * wanted + asked)
        self._survival = None

    def survival(self) -> Sequence[float]:
        """Element i: the probability that draft i and all before it are kept. Falls with i."""
        if self._survival is None:
            self._survival = self._estimate()
        return self._survival

    @property
    def rows(self) -> float:
        """Drafts that come for one that is asked for."""
        came, wanted = self._filled
        return (came + 4) / (wanted + 4)

    def _estimate(self) -> list[float]:
        prior, tally = self._prior.rates(), self._tally
        # A sequence that misses more than expected where it was tried will do so where it was not.
        missed = sum(tried - won for tried, won in zip(tally.tried, tally.won, strict=True))
        expected = sum(tried * (1 - rate) for tried, rate in zip(tally.tried, prior, strict=True))
        harder = (missed + 2) / (expected + 2)
        survival, alive = [], 1.0
        for tried, won, rate in zip(tally.tried, tally.won, prior, strict=True):
            here = max(1 - (1 - rate) * harder, 0.0)
            alive *= (won + 3 * here) / (tried + 3)
            survival.append(alive)
        return survival
