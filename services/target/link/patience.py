"""How long a round waits for drafts, and when to stop asking a drafter that does not answer.

Both are measured, on a clock that is passed in. Being slow costs acceptance, never the request.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Deadline:
    """Seconds a round waits for its drafts: `first_s` until eight answers are known, then a multiple of the slowest."""

    first_s: float
    most_s: float
    least_s: float = 0.02
    factor: float = 4.0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def seconds(self) -> float:
        if len(self._recent) < 8:
            return self.first_s
        return min(max(self.factor * max(self._recent), self.least_s), self.most_s)

    def answered(self, seconds: float) -> None:
        """Learn from an answer, a late one too: else a drafter that became slower would never be waited for again."""
        self._recent.append(seconds)


@dataclass(slots=True)
class Breaker:
    """Rests a drafter after `limit` unanswered turns in a row, for `first_s` doubling to `most_s`."""

    clock: Callable[[], float]
    limit: int
    first_s: float
    most_s: float = 30.0
    _unanswered: int = 0
    _rest_s: float = 0.0
    _until: float = 0.0

    @property
    def open(self) -> bool:
        return self.clock() < self._until

    def answered(self) -> None:
        self._unanswered, self._rest_s = 0, 0.0

    def unanswered(self) -> None:
        """After a rest, one more unanswered turn is enough to rest again, for longer."""
        self._unanswered += 1
        if self._unanswered >= self.limit or self._rest_s:
            self._rest_s = min(2 * self._rest_s or self.first_s, max(self.most_s, self.first_s))
            self._until = self.clock() + self._rest_s
