"""A chat's answer as server-sent events: one data frame a round, one for each end, then the end mark."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from services.errors import TandemError
from services.gateway.choice import Delta
from services.gateway.generate import Generation
from services.gateway.openai import errors
from services.gateway.openai.answer import ChatAnswer

log = logging.getLogger(__name__)


class ChatStream(EventSourceResponse):
    """`first` is the task that waits for the first delta. Comments keep the connection alive every `ping_s`.

    However the response ends, the generation is closed with it.
    """

    def __init__(
        self,
        generation: Generation,
        first: asyncio.Task[Delta],
        answer: ChatAnswer,
        *,
        include_usage: bool,
        ping_s: float,
    ) -> None:
        self._generation = generation
        self._first = first
        self._answer = answer
        self._include_usage = include_usage
        super().__init__(self._frames(), ping=ping_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
            await self._generation.deltas.aclose()

    async def _frames(self) -> AsyncGenerator[str, None]:
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield _json(chunk)
        except Exception as error:
            if not isinstance(error, TandemError):
                log.exception("a stream failed")
            yield _json(errors.body(error))
        else:
            yield "[DONE]"

    async def _chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        answer = self._answer
        begun = set[int]()
        usage = {"usage": None} if self._include_usage else {}
        async for delta in self._deltas():
            yield answer.chunk(answer.gained(delta, first=delta.choice not in begun), **usage)
            begun.add(delta.choice)
            tail = answer.tail(delta.end, usage=self._include_usage) if delta.end else {}
            if delta.finish and self._include_usage:
                yield answer.chunk(answer.finished(delta), **usage)
            elif delta.finish:
                yield answer.chunk(answer.finished(delta), **tail)
            if tail and self._include_usage:
                yield answer.chunk(**tail)

    async def _deltas(self) -> AsyncGenerator[Delta, None]:
        yield await self._first
        async for delta in self._generation.deltas:
            yield delta


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
