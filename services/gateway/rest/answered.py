"""The second half of every route: a generation becomes one answer or a stream, for as long as the client is there."""

import asyncio
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.gateway.choice import Delta
from services.gateway.rest.answer import Answer, Readable
from services.gateway.rest.connected import settled
from services.gateway.rest.stream import EventStream


async def answered(
    request: Request, generation: Readable, answer: Answer, *, stream: bool | None, ping_s: float
) -> Response:
    if not stream:
        whole = asyncio.create_task(_whole(generation))
        await settled(whole, request)
        return JSONResponse(answer.whole(whole.result()))
    first = asyncio.create_task(anext(generation.deltas))
    # What is refused is refused with a status of its own; a client that waits long hears of it in the stream.
    if await settled(first, request, within_s=ping_s):
        first.result()
    return EventStream(generation, first, answer, ping_s=ping_s)


async def _whole(generation: Readable) -> list[Delta]:
    async with aclosing(generation.deltas) as deltas:
        return [delta async for delta in deltas]
