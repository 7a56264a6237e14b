"""How likely each further draft is kept: by drafter and position, for all sequences and for one.

A sequence starts from what its drafter came to elsewhere, and soon speaks for itself. Counts fade, for texts change.
That a drafter has nothing to say is counted apart: it costs next to nothing, and tells nothing of what it does say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

POSITIONS = 15
HOPE = 0.8
"""What a drafter that was never heard is believed to do at each position: much, so that it is tried."""

DOUBT = 6.0
"""Drafts of all sequences that count as much as that hope."""

TRUST = 12.0
"""Drafts of a sequence's own that count as much as what is known from others."""

SURE = 4.0
"""Misses that are put down to chance."""

RELAX = 0.98
"""What is left, after each round that does not use a drafter, of what its drafts came to: luck may have been bad."""

RELAX_ALL = 0.999
"""The same of what its drafts came to for all sequences: a drafter that nobody uses is hoped for again one day."""

RECENT, FAR, FORGET = 0.9, 2.5, 0.15
"""Surprises fade by the first; where their sum is off by so many standard deviations, all but the last is forgotten."""

FORGOTTEN = 1e-12
"""What is left of counts when nothing of them matters any more."""

NEGLIGIBLE = 0.01
"""Drafts that are kept less often than this are not thought of."""


@dataclass(slots=True)
class Tally:
    """Counts that fade by `fade` with each round: of `tried[i]` drafts i whose forerunners were all kept `won[i]` were
    kept too. They are stored in units of `weight`, which grows, so that adding touches only what it adds to."""

    fade: float
    tried: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)
    won: list[float] = field(default_factory=lambda: [0.0] * POSITIONS)
    weight: float = 1.0

    def add(self, asked: int, accepted: int, cut: Sequence[float] = ()) -> None:
        """A draft that was asked for and is missing behind others was not kept. `cut`: the first `accepted` were all
        that were verified, and more came; what is to be expected of each, if those before it are kept, is counted in
        the place of what was not seen."""
        self.weight /= self.fade
        for i in range(min(accepted + 1, asked)):
            self.tried[i] += self.weight
        for i in range(accepted):
            self.won[i] += self.weight
        if cut:
            self._expect(asked, accepted, cut)
        self._rescale()

    def relax(self, left: float) -> None:
        """All counts become `left` of what they were. However often: a server runs for weeks."""
        self.weight /= max(left, FORGOTTEN)
        self._rescale()

    def _rescale(self) -> None:
        if self.weight > 1 / FORGOTTEN:
            self.tried = [each / self.weight for each in self.tried]
            self.won = [each / self.weight for each in self.won]
            self.weight = 1.0

    def _expect(self, asked: int, accepted: int, cut: Sequence[float]) -> None:
        alive = self.weight
        for place, chance in enumerate(cut, accepted):
            if place > accepted:
                self.tried[place] += alive
            alive *= chance
            self.won[place] += alive
        if accepted + len(cut) < asked:
            self.tried[accepted + len(cut)] += alive


@dataclass(slots=True)
class Bias:
    """Drafts that were `missed` and misses that were `foretold`, both fading by `fade` with each round. Above 1 the
    `factor` says that more are missed than was foretold."""

    fade: float
    missed: float = 0.0
    foretold: float = 0.0

    def add(self, missed: float, foretold: float) -> None:
        self.missed, self.foretold = self.fade * self.missed + missed, self.fade * self.foretold + foretold

    def relax(self, left: float) -> None:
        self.missed, self.foretold = left * self.missed, left * self.foretold

    @property
    def factor(self) -> float:
        return (self.missed + SURE) / (self.foretold + SURE)


class Prior:
    """One drafter over all sequences: what a new one may expect. `rates` by position and `speaks`, the probability that
    drafts come at all, are those of the last `refresh`."""

    def __init__(self) -> None:
        self.rates: Sequence[float] = [HOPE] * POSITIONS
        self.speaks = 1.0
        self.tries = 0
        self._drafts, self._came = Tally(fade=0.998), Tally(fade=0.998)

    def add(self, asked: int, came: int, accepted: int, cut: Sequence[float] = ()) -> None:
        self.tries += 1
        self._came.add(1, int(came > 0))
        if came:
            self._drafts.add(asked, accepted, cut)

    def relax(self) -> None:
        """No sequence used it in a round."""
        for tally in (self._drafts, self._came):
            tally.relax(RELAX_ALL)

    def refresh(self) -> None:
        """Far positions, seldom reached, lean on the ones before them."""
        tally, before, rates = self._drafts, HOPE, []
        for tried, won in zip(tally.tried, tally.won, strict=True):
            before = (won + DOUBT * before * tally.weight) / (tried + DOUBT * tally.weight)
            rates.append(before)
        self.rates = rates
        came = self._came
        self.speaks = (came.won[0] + 2 * came.weight) / (came.tried[0] + 2 * came.weight)


class Acceptance:
    """One drafter for one sequence. Drafts that were `tried`, which none is behind a wrong one, and that were
    `accepted`, in all; of those that were cut as many as is to be expected. `bias` is that of the confidences that were
    given for the sequence. `current`: rounds of the sequence whose doubts are in it."""

    def __init__(self, prior: Prior, current: int = 0) -> None:
        self.current = current
        self.tried = self.accepted = 0.0
        self.bias = Bias(fade=0.985)
        self._prior = prior
        self._drafts, self._came = Tally(fade=0.985), Tally(fade=0.99)
        self._harder = Bias(fade=0.985)
        self._hoped: Sequence[float] = ()
        self._drift, self._spread = 0.0, 1.0

    def record(self, asked: int, came: int, accepted: int, cut: Sequence[float] = ()) -> None:
        """`cut` as in `Tally.add`."""
        kept, tried = float(accepted), [1.0] * min(accepted + 1, asked)
        if cut:
            alive = list(accumulate(cut, mul))
            kept += sum(alive)
            tried += alive[: asked - accepted - 1]
        self._prior.add(asked, came, accepted, cut)
        self._came.add(1, int(came > 0))
        if came:
            self.tried, self.accepted = self.tried + sum(tried[:came]), self.accepted + kept
            self._notice(kept - sum(self._hoped[:asked]) / self.speaks)
            self._drafts.add(asked, accepted, cut)
            likely = sum(map(mul, tried, self._prior.rates))
            self._harder.add(sum(tried) - kept, sum(tried) - likely)

    def _notice(self, surprise: float) -> None:
        """The text became another when what is kept is off by far more than by chance, several rounds together."""
        self._spread = 0.95 * self._spread + 0.05 * surprise * surprise
        self._drift = RECENT * self._drift + surprise
        if self._drift * self._drift > FAR * FAR * self._spread / (1 - RECENT * RECENT):
            self._drafts.relax(FORGET)
            self._harder.relax(FORGET)
            self._drift = 0.0

    def relax(self, now: int) -> None:
        """It was not used since round `current`, and now so many are over."""
        if now == self.current:
            return
        left = RELAX ** (now - self.current)
        self.current = now
        for tally in (self._drafts, self._came):
            tally.relax(left)
        self._harder.relax(left)
        self.bias.relax(left)

    @property
    def speaks(self) -> float:
        """The probability that drafts come."""
        came = self._came
        return (came.won[0] / came.weight + 10 * self._prior.speaks) / (came.tried[0] / came.weight + 10)

    def survival(self, most: int) -> Sequence[float]:
        """Element i of at most `most`: the probability that drafts come, and draft i and all before it are kept."""
        # A sequence that misses more than expected where it was tried will do so where it was not.
        harder = self._harder.factor
        tally, alive = self._drafts, self.speaks
        survival: list[float] = []
        trust = TRUST * tally.weight
        for tried, won, rate in zip(tally.tried[:most], tally.won, self._prior.rates, strict=False):
            alive *= (won + trust * max(1 - (1 - rate) * harder, 0.0)) / (tried + trust)
            if alive < NEGLIGIBLE and survival:
                break
            survival.append(alive)
        self._hoped = survival
        return survival
