"""What a route reads, and what an API makes of it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Protocol

from sse_starlette import ServerSentEvent

from services.gateway.choice import Delta


class Readable(Protocol):
    """A generation, or several read as one."""

    deltas: AsyncGenerator[Delta, None]


class Answer(Protocol):
    """How an API writes what a generation brings; nothing has come yet when it is made."""

    def whole(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """The body of an answer that does not stream."""

    def events(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[ServerSentEvent, None]:
        """A stream, to its end mark."""

    def failure(self, error: Exception) -> ServerSentEvent:
        """The last event of a stream that cannot go on."""

    def ping(self) -> ServerSentEvent:
        """Says nothing but that the server is there."""


def event(value: dict[str, Any], *, name: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")), event=name)
