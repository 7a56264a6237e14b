"""What rounds take, measured: the forward by rows and context, the wait for drafts by drafter, sequences, length.

One table for all sequences. Clocks change: when everything takes longer or shorter by much, three rounds in a row, then
all that is known is scaled at once, so that what is compared stays comparable.
"""

from collections.abc import Collection
from statistics import median

from services.target.policy.curve import Curve
from services.target.policy.decision import Seen

JUMP, IN_A_ROW = 1.5, 3
"""A round that is off by this factor is odd: a hiccup and left out, unless it is the third in a row."""

CALIBRATION = 4
"""Rounds that are given, at the very first, to measuring what plain decoding takes."""


CHEAPER = 0.9995
"""What a drafter is believed to take, against the round before, while nobody uses it: the machine may have been busy
when it was measured."""

STALE = 0.9
"""Where that has come to so much, what was measured last stands in for the next sample only."""


class Timings:
    """Seconds. `since_plain` counts rounds since the last without any draft."""

    def __init__(self) -> None:
        self.since_plain = 0
        self._rounds = 0
        self._verify: dict[int, Curve] = {}
        self._drafts: dict[tuple[str, int], Curve] = {}
        self._unused: dict[str, float] = {}  # by drafter, what doubt has made of its times
        self._odd: list[float] = []

    @property
    def calibrating(self) -> bool:
        """These are the first rounds of all: none was measured twice, as long as there is hope that one will be."""
        return self._rounds < CALIBRATION and not any(curve.settled for curve in self._verify.values())

    def verify(self, context: int) -> Curve | None:
        """The forward's time by rows, for sequences of `context` tokens together; None before anything is known."""
        if not self._verify:
            return None
        wanted = context.bit_length()
        return self._verify[min(self._verify, key=lambda bucket: (abs(bucket - wanted), -bucket))]

    def draft(self, mode: str, size: int, length: int) -> float:
        """The wait for drafts of `length` tokens for 2^(size-1) to 2^size - 1 sequences; 0 for a drafter that was never
        asked."""
        curve = self._drafts.get((mode, size)) or self._nearest(mode, size)
        return curve.at(length) * self._unused.get(mode, 1.0) if curve else 0.0

    def known(self, mode: str) -> bool:
        """The drafter was asked before, and more than once."""
        return any(curve.settled for (name, _), curve in self._drafts.items() if name == mode)

    def forget(self, mode: str) -> None:
        """The drafter is gone; what comes back under its name may be another on another machine."""
        self._unused.pop(mode, None)
        self._drafts = {key: curve for key, curve in self._drafts.items() if key[0] != mode}

    def record(self, seen: Seen) -> None:
        """Learn from a round."""
        self._rounds += 1
        asked = [each for each in seen.outcomes if each.asked]
        self._doubt({each.mode for each in asked})
        self.since_plain = self.since_plain + 1 if asked or seen.mixed else 0
        if not seen.mixed and seen.outcomes:
            if self._is_odd(seen):
                return  # of the drafts' time too: what a jump scales must be all of one clock
            self._curve(seen.context).record(seen.rows, seen.verify_s)
        modes = {each.mode for each in asked}
        if seen.answered and len(modes) == 1:
            curve = self._drafts.setdefault((asked[0].mode, len(asked).bit_length()), Curve())
            longest = max(each.asked for each in asked)
            curve.record(longest, seen.draft_s)
            curve.outdate(longest, JUMP * curve.at(longest))

    def _doubt(self, used: Collection[str]) -> None:
        """What was long not measured is measured anew when it is used again: the next sample counts whole."""
        for mode in {mode for mode, _ in self._drafts}:
            if mode not in used:
                self._unused[mode] = CHEAPER * self._unused.get(mode, 1.0)
            elif self._unused.pop(mode, 1.0) < STALE:
                for (name, _), curve in self._drafts.items():
                    if name == mode:
                        curve.expire()

    def _curve(self, context: int) -> Curve:
        bucket = context.bit_length()
        if bucket not in self._verify:
            nearest = self.verify(context)
            self._verify[bucket] = nearest.copy() if nearest else Curve()
        return self._verify[bucket]

    def _is_odd(self, seen: Seen) -> bool:
        curve = self._verify.get(seen.context.bit_length())
        if curve is None or curve.samples(seen.rows) < 2:
            return False
        ratio = seen.verify_s / max(curve.at(seen.rows), 1e-9)
        if 1 / JUMP < ratio < JUMP:
            self._odd.clear()
            return False
        self._odd.append(ratio)
        if len(self._odd) >= IN_A_ROW:
            factor = median(self._odd)
            for each in (*self._verify.values(), *self._drafts.values()):
                each.scale(factor)
            self._odd.clear()
        return True

    def _nearest(self, mode: str, wanted: int) -> Curve | None:
        sizes = [size for name, size in self._drafts if name == mode]
        return self._drafts[mode, min(sizes, key=lambda size: abs(size - wanted))] if sizes else None
