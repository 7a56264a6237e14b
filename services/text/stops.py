"""Stop strings found in text that comes in pieces, each character looked at once."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from services.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class StopMatch:
    """`offset`: characters of the whole output before the match."""

    string: str
    offset: int


class StopMatcher:
    """The machine of Aho and Corasick. A state is a beginning of some stop string, the longest that the text ends
    with; the match that ends first wins, and of those that end together the one that began first."""

    def __init__(self, strings: Sequence[str]) -> None:
        if "" in strings:
            raise InvalidRequest("a stop string must not be empty, for every text contains it", field="stop")
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._whole: list[str | None] = [None]  # the longest stop string the state ends with
        self._shorter = [0]  # the state to fall back to: the longest beginning that is a proper end of this one
        for string in strings:
            self._add(string)
        self._link()
        self._state = 0
        self._seen = 0
        self._match: StopMatch | None = None

    @property
    def held(self) -> int:
        """How many of the last characters may yet turn out to begin a stop string."""
        return 0 if self._match else self._depth[self._state]

    def push(self, text: str) -> StopMatch | None:
        """The first match is final: later text changes nothing."""
        if self._match or len(self._depth) == 1:
            return self._match
        state = self._state
        for place, character in enumerate(text, start=self._seen + 1):
            while state and character not in self._next[state]:
                state = self._shorter[state]
            state = self._next[state].get(character, 0)
            if (string := self._whole[state]) is not None:
                self._match = StopMatch(string, place - len(string))
                break
        self._state = state
        self._seen += len(text)
        return self._match

    def _add(self, string: str) -> None:
        state = 0
        for depth, character in enumerate(string, start=1):
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(depth)
                self._whole.append(None)
                self._shorter.append(0)
            state = self._next[state][character]
        self._whole[state] = string

    def _link(self) -> None:
        """Breadth first, so that every shorter state is finished before a longer one needs it."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            if self._whole[state] is None:
                self._whole[state] = self._whole[self._shorter[state]]
            for character, longer in self._next[state].items():
                back = self._shorter[state]
                while back and character not in self._next[back]:
                    back = self._shorter[back]
                self._shorter[longer] = self._next[back].get(character, 0)
                queue.append(longer)
