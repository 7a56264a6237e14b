"""Text in the colours of its tokens' origins, for a terminal."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby

from tandem.v1.types_pb2 import Token

from services.wire.codec import ORIGINS

STYLES = {"first": "1", "accepted": "32", "correction": "33", "bonus": "36"}
"""The code of each origin in an ANSI escape sequence; `plain` stays as it is."""

LEGEND = {
    "first": "first token",
    "accepted": "draft that was right",
    "correction": "in place of a wrong draft",
    "bonus": "after right drafts",
    "plain": "without a draft",
}


def painted(text: str, origin: str) -> str:
    return f"\x1b[{STYLES[origin]}m{text}\x1b[0m" if origin in STYLES else text


def legend() -> str:
    return "  ".join(painted(f"{origin}: {meaning}", origin) for origin, meaning in LEGEND.items())


def harmless(text: str) -> str:
    """A model may write anything, and a terminal obeys control characters."""
    return "".join(char if char in "\n\t" or char.isprintable() else "\ufffd" for char in text)


class Origins:
    """Gives each character of a text to the token that completed it. The text comes later than its tokens where some
    of it is held back, and loses what a stop string cut off."""

    def __init__(self) -> None:
        self._owed: deque[tuple[str, int]] = deque()  # origin, bytes of its token that did not come as text yet
        self._last = "first"

    def push(self, text: str, tokens: Iterable[Token]) -> Iterator[tuple[str, str]]:
        """Runs of one origin: (origin, text)."""
        self._owed.extend((ORIGINS.name(token.origin) or "plain", len(token.piece)) for token in tokens)
        for origin, run in groupby([(self._take(len(char.encode())), char) for char in text], lambda pair: pair[0]):
            yield origin, "".join(char for _, char in run)

    def _take(self, size: int) -> str:
        while size and self._owed:
            self._last, left = self._owed.popleft()
            if left > size:
                self._owed.appendleft((self._last, left - size))
            size -= min(size, left)
        return self._last
