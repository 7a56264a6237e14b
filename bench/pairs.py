"""Comparing ways of doing the same: in which order to run them, and what their ratio is known to be."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

RESAMPLES = 10_000
COVERED = 0.95

T = TypeVar("T")
Samples = dict[str, list[tuple[T, T]]]
"""Of each way and repeat: what it gave on the way there and on the way back."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and between which values 95 % of the medians of resampled repeats lie."""

    median: float
    low: float
    high: float
    repeats: int

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def there_and_back(ways: Mapping[str, Callable[[], T]], repeats: int, *, warm_up: bool = True) -> Samples[T]:
    """Run every way once to warm up, then in each repeat A B ... and back, ... B A: what drifts steadily through a
    repeat weighs the same on every way. With two ways this is ABBA. Without `warm_up`, the caller has seen to that."""
    if warm_up:
        for way in ways.values():
            way()
    samples: Samples[T] = {name: [] for name in ways}
    for _ in range(repeats):
        there = {name: way() for name, way in ways.items()}
        back = {name: ways[name]() for name in reversed(list(ways))}
        for name in ways:
            samples[name].append((there[name], back[name]))
    return samples


def means(samples: Sequence[tuple[T, T]], number: Callable[[T], float]) -> list[float]:
    """One number a repeat."""
    return [(number(there) + number(back)) / 2 for there, back in samples]


def ratio(above: Sequence[float], below: Sequence[float]) -> Interval:
    """The median over repeats of `above` / `below`, each pair from one repeat."""
    return interval([a / b for a, b in zip(above, below, strict=True)])


def interval(values: Sequence[float]) -> Interval:
    """The percentile bootstrap of the median (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13), with
    a fixed seed."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - COVERED) / 2)
    return Interval(statistics.median(values), medians[outside], medians[-1 - outside], len(values))
