"""A draft length that follows how much of the last ones was used: it doubles where most was, halves where little."""

from dataclasses import dataclass

FLOOR = 2
DOUBLE, HALVE = 0.75, 0.5


@dataclass(slots=True)
class Length:
    """`now` of at most `most` drafts. `used` is the mean part of a round's rows that was kept, 1 at first."""

    now: int
    most: int
    used: float = 1.0

    def record(self, length: int, kept: int) -> None:
        """A round drafted `length` tokens and kept `kept`, the target's own last one among them."""
        self.used = 0.5 * self.used + 0.5 * kept / (length + 1)
        if self.used >= DOUBLE:
            self.now = min(2 * self.now, self.most)
        elif self.used <= HALVE:
            self.now = min(max(self.now // 2, FLOOR), self.most)
