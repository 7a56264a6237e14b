"""Tasks that run beside a body and end with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background() -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]]:
    """Start tasks with the yielded function; leaving cancels them, waits for their end, and raises what
    any of them failed with."""
    tasks: list[asyncio.Task[None]] = []

    def start(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(coroutine))
        return tasks[-1]

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
