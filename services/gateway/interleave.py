"""Several streams read at once, their items in the order they come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Interleaved(Generic[Item]):
    """Iterate it for (index of the stream, item); the first error of a stream ends all.

    The queue between is short: a slow reader stops the streams, and through them the sender.
    """

    def __init__(self, streams: Sequence[AsyncGenerator[Item, None]]) -> None:
        self._streams = streams
        self._queue = asyncio.Queue[tuple[int, Item] | Exception | None](maxsize=len(streams))
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        """End at once with `error`."""
        self._failure = error
        if self._queue.empty():  # otherwise the reader has something to wake up for
            self._queue.put_nowait(error)

    async def __aiter__(self) -> AsyncGenerator[tuple[int, Item], None]:
        tasks = [asyncio.create_task(self._read(index, stream)) for index, stream in enumerate(self._streams)]
        try:
            running = len(tasks)
            while running:
                item = await self._queue.get()
                if self._failure:
                    raise self._failure
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    running -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, index: int, stream: AsyncGenerator[Item, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    await self._queue.put((index, item))
        except Exception as error:
            await self._queue.put(error)
        else:
            await self._queue.put(None)
