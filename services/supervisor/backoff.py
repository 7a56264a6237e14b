"""How long to wait before a dead program is started again."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """`first_s`, doubling up to `longest_s`; from the beginning again after a life of more than `longest_s`."""

    first_s: float
    longest_s: float
    _next_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_s = self.first_s

    def after(self, lived_s: float) -> float:
        if lived_s > self.longest_s:
            self._next_s = self.first_s
        wait_s = min(self._next_s, self.longest_s)
        self._next_s = wait_s * 2
        return wait_s
