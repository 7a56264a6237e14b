"""Which drafters `auto` may use at which length of context, in order of preference."""

from collections.abc import Sequence
from dataclasses import dataclass

THRESHOLD = 20_480
"""Tokens of prompt and output from which block drafters lose to a recurrent one, by published measurements on a 27B."""


@dataclass(frozen=True, slots=True)
class Band:
    """Contexts of `start` to `end` - 1 tokens; `end` None: no upper end."""

    start: int
    end: int | None
    modes: tuple[str, ...]

    def covers(self, context: int) -> bool:
        return self.start <= context and (self.end is None or context < self.end)


DEFAULT_BANDS = (
    Band(0, THRESHOLD, ("dflash2", "dflash", "mtp", "ngram")),
    Band(THRESHOLD, None, ("mtp", "ngram")),
)


def checked(bands: Sequence[Band], legal: Sequence[str]) -> tuple[Band, ...]:
    """`bands`, if they ascend without overlap and name each legal mode at most once. Raises ValueError saying which
    band is wrong, and how. Lengths that no band covers are decoded plainly."""
    reached: int | None = 0
    for number, band in enumerate(bands, 1):
        if reached is None or band.start < reached:
            raise ValueError(f"band {number} begins at {band.start}, inside the one before it")
        if band.end is not None and band.end <= band.start:
            raise ValueError(f"band {number} ends at {band.end}, not after its begin {band.start}")
        wrong = next((mode for mode in band.modes if mode not in legal), None)
        if wrong is not None:
            raise ValueError(f"band {number} names {wrong!r}, which is none of {', '.join(legal)}")
        if not band.modes or len(set(band.modes)) < len(band.modes):
            raise ValueError(f"band {number} names no mode, or one twice")
        reached = band.end
    return tuple(bands)


def place(bands: Sequence[Band], context: int, current: Band | None, hysteresis: int) -> Band | None:
    """The band of a sequence of `context` tokens; None where no band covers it. It stays in `current` until it is
    `hysteresis` tokens out of it: who ends just behind a border pays for no change of drafters."""
    if (
        current is not None
        and current.start - hysteresis <= context
        and (current.end is None or context < current.end + hysteresis)
    ):
        return current
    return next((band for band in bands if band.covers(context)), None)
