"""A time that grows with a count (rows, drafts), as far as it was measured: straight lines between the points."""

from bisect import bisect_left
from dataclasses import dataclass

KEEP, TAKE = 0.7, 0.3
"""A new sample counts `TAKE`, what was known `KEEP`."""

GUESSED_SLOPE = 0.02
"""Of a point's time, what one more costs where only that point is known: little, so that it is tried."""


@dataclass(slots=True)
class Point:
    """`expired`: what is known only stands in until the next sample, as the first does, which is kernel-cold."""

    seconds: float
    samples: int = 1
    expired: bool = True

    def add(self, seconds: float) -> None:
        self.seconds = seconds if self.expired else KEEP * self.seconds + TAKE * seconds
        self.samples += 1
        self.expired = False


class Curve:
    """Measured at whole numbers."""

    def __init__(self) -> None:
        self._xs: list[int] = []
        self._points: list[Point] = []

    def __bool__(self) -> bool:
        return bool(self._xs)

    @property
    def settled(self) -> bool:
        """Some point was measured more than once."""
        return any(point.samples > 1 for point in self._points)

    def samples(self, x: int) -> int:
        place = bisect_left(self._xs, x)
        return self._points[place].samples if place < len(self._xs) and self._xs[place] == x else 0

    def record(self, x: int, seconds: float) -> None:
        place = bisect_left(self._xs, x)
        if place < len(self._xs) and self._xs[place] == x:
            self._points[place].add(seconds)
        else:
            self._xs.insert(place, x)
            self._points.insert(place, Point(seconds))

    def at(self, x: float) -> float:
        """Seconds at `x`; past the last point the line through the first and last goes on. There is a point."""
        xs, points = self._xs, self._points
        place = bisect_left(xs, x)
        if place < len(xs):
            right = points[place].seconds
            if xs[place] == x:
                return right
            if place:
                before, left = xs[place - 1], points[place - 1].seconds
                return left + (right - left) * (x - before) / (xs[place] - before)
        nearest = min(place, len(xs) - 1)
        known = points[nearest].seconds
        return max(known + self._slope() * (x - xs[nearest]), known / 5)

    def _slope(self) -> float:
        first, last = self._points[0], self._points[-1]
        if len(self._xs) == 1:
            return first.seconds * GUESSED_SLOPE
        return max((last.seconds - first.seconds) / (self._xs[-1] - self._xs[0]), 0.0)

    def copy(self) -> "Curve":
        """The same, every point to be replaced by its next sample."""
        new = Curve()
        new._xs, new._points = self._xs.copy(), [Point(point.seconds) for point in self._points]
        return new

    def outdate(self, x: int, seconds: float) -> None:
        """`x` takes `seconds`, so less does not take longer."""
        for point in self._points[: bisect_left(self._xs, x)]:
            if point.seconds > seconds:
                point.seconds, point.expired = seconds, True

    def expire(self) -> None:
        """All was measured long ago."""
        for point in self._points:
            point.expired = True

    def scale(self, factor: float) -> None:
        """The clock changed: so did every time, and the next sample of each says by how much exactly."""
        for point in self._points:
            point.seconds *= factor
            point.samples, point.expired = 1, True
