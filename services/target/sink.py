"""Where a sequence's tokens wait for whoever streams them. Lives on the event loop.

Rounds that the reader has not taken are merged into one update, so what waits is bounded by the sequence's own limit.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.engine.sampling import TokenLogprobs
from services.errors import TandemError
from services.target.cut import Finish
from services.target.report import Report


@dataclass(frozen=True, slots=True)
class Kept:
    """A token of the answer and where it came from."""

    id: int
    origin: str
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Update:
    """The tokens of one round or more, and the cumulative report after them."""

    kept: tuple[Kept, ...]
    report: Report
    finish: Finish | None


class Sink:
    """One writer, one reader."""

    def __init__(self) -> None:
        self._pending: Update | None = None
        self._error: TandemError | None = None
        self._changed = asyncio.Event()

    def put(self, update: Update) -> None:
        if self._pending is not None:
            update = Update(self._pending.kept + update.kept, update.report, update.finish)
        self._pending = update
        self._changed.set()

    def fail(self, error: TandemError) -> None:
        """End the stream with `error`, after what already waits."""
        self._error = error
        self._changed.set()

    async def updates(self) -> AsyncIterator[Update]:
        """Yield until the finish; raises what `fail` was given."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            update, self._pending = self._pending, None
            if update is not None:
                yield update
                if update.finish is not None:
                    return
            if self._error is not None:
                raise self._error
