"""How often drafts of a stated confidence are kept, measured: for one drafter and one way of choosing tokens.

A drafter's confidence says which of its drafts are better, and seldom how good they are. So what counts is how often
drafts that stated about as much, and whose forerunners were all kept, were kept too. Only what was verified teaches.
"""

from bisect import bisect_right
from collections.abc import Sequence

from services.target.policy.acceptance import HOPE, POSITIONS, Bias

EDGES = (0.05, 0.15, 0.3, 0.45, 0.6, 0.72, 0.82, 0.9, 0.95, 0.98, 0.995)
"""Between the bins; finer where confidences of good drafters are."""

MIDDLES = tuple((low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))

FADE = 0.999
"""Of all counts with each draft that is learned from, so that a bin that is never verified is not known for ever."""

USUAL, STATED = 3.0, 1.0
"""Drafts that a bin is believed to have had before any: so many as good as the others, so many as good as stated."""

ENOUGH = 64
"""Drafts to have judged before anything is cut for what they say."""

FRESH = 32
"""Drafts judged since the bins were last worked out, after which that is done again."""


class Calibration:
    """`judged` drafts in all."""

    def __init__(self) -> None:
        self.judged = 0
        self._tried, self._won, self._weight = [0.0] * len(MIDDLES), [0.0] * len(MIDDLES), 1.0
        self._places = [Bias(fade=0.998) for _ in range(POSITIONS)]
        self._due = 0
        self._work_out()

    @property
    def informed(self) -> bool:
        return self.judged >= ENOUGH

    def chances(self, confidences: Sequence[float], bias: float = 1.0) -> list[float]:
        """The probability that each is kept if those before it are, for a sequence that misses `bias` times as many as
        others that are told the same."""
        misses, factors = self._misses, self._factors
        return [
            max(1.0 - misses[bisect_right(EDGES, confidence)] * factor * bias, 0.0)
            for confidence, factor in zip(confidences, factors, strict=False)
        ]

    def lasting(self, confidences: Sequence[float], bias: float, price: float) -> int:
        """How many of the first are right, with all before them, more probably than `price`. `bias` as above."""
        misses, factors, alive = self._misses, self._factors, 1.0
        for place, confidence in enumerate(confidences):
            alive *= max(1.0 - misses[bisect_right(EDGES, confidence)] * factors[place] * bias, 0.0)
            if alive <= price:
                return place
        return len(confidences)

    def learn(self, confidences: Sequence[float], tried: int, won: int, bias: Bias) -> None:
        """The first `tried` were verified and all before them kept, `won` of them were kept too. `bias` of the sequence
        learns what is left to say of it."""
        self._weight /= FADE
        foretold = 0.0
        for place, confidence in enumerate(confidences[:tried]):
            bin = bisect_right(EDGES, confidence)
            self._tried[bin] += self._weight
            if place < won:
                self._won[bin] += self._weight
            expected = self._misses[bin]
            self._places[place].add(place >= won, expected)
            foretold += min(expected * self._factors[place], 1.0)
        bias.add(tried - won, foretold)
        self.judged += tried
        self._due += tried
        if self._due >= FRESH:
            self._work_out()

    def _work_out(self) -> None:
        """A bin with few drafts leans on all of them; one that is better than a bin that states more is put together
        with it."""
        unit = self._weight
        self._tried, self._won, self._weight = [t / unit for t in self._tried], [w / unit for w in self._won], 1.0
        usual = (sum(self._won) + HOPE) / (sum(self._tried) + 1)
        blocks: list[tuple[float, float, int]] = []  # drafts, misses and bins of neighbours that are as good
        for tried, won, stated in zip(self._tried, self._won, MIDDLES, strict=True):
            drafts = tried + USUAL + STATED
            missed, bins = drafts - won - USUAL * usual - STATED * stated, 1
            while blocks and blocks[-1][1] * drafts < missed * blocks[-1][0]:
                before = blocks.pop()
                drafts, missed, bins = drafts + before[0], missed + before[1], bins + before[2]
            blocks.append((drafts, missed, bins))
        self._misses = [missed / drafts for drafts, missed, bins in blocks for _ in range(bins)]
        self._factors = [place.factor for place in self._places]
        self._due = 0
