"""Work that is worth doing only while the client is there."""

import asyncio
from typing import TypeVar

from starlette.requests import Request

from services.errors import Cancelled

Result = TypeVar("Result")


async def settled(task: asyncio.Task[Result], request: Request, *, within_s: float | None = None) -> bool:
    """Wait for `task`, at most so long, and say whether it is done. When the client leaves, end it: Cancelled."""
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and gone.done():
            raise Cancelled("the client left")
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    finally:
        gone.cancel()
    return task.done()


async def _disconnected(request: Request) -> None:
    """The body was read, so all that can come is the end of the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
