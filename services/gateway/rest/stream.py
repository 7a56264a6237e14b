"""An answer as server-sent events, and the end of the generation with it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from services.errors import TandemError
from services.gateway.choice import Delta
from services.gateway.rest.answer import Answer, Readable

log = logging.getLogger(__name__)


class EventStream(EventSourceResponse):
    """`first` is the task that waits for the first delta. A ping goes out every `ping_s`, by the clock.

    However the response ends, the generation is closed with it.
    """

    def __init__(self, generation: Readable, first: asyncio.Task[Delta], answer: Answer, *, ping_s: float) -> None:
        self._generation = generation
        self._first = first
        self._answer = answer
        super().__init__(self._events(), ping=ping_s, ping_message_factory=answer.ping)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
            await self._generation.deltas.aclose()

    async def _events(self) -> AsyncGenerator[ServerSentEvent, None]:
        try:
            async with aclosing(self._deltas()) as deltas, aclosing(self._answer.events(deltas)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            if not isinstance(error, TandemError):
                log.exception("a stream failed")
            yield self._answer.failure(error)

    async def _deltas(self) -> AsyncGenerator[Delta, None]:
        yield await self._first
        async for delta in self._generation.deltas:
            yield delta
