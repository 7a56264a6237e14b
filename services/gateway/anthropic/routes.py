"""POST /v1/messages and POST /v1/messages/count_tokens."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.anthropic import request as messages_request
from services.gateway.anthropic.answer import MessagesAnswer
from services.gateway.generate import Generator
from services.gateway.rest import body
from services.gateway.rest.answered import answered
from services.gateway.rest.request_ids import request_id
from services.wire.trace import trace_of

PREFIX = "/v1/messages"


def anthropic_routes(generator: Generator, *, limits: body.Limits, ping_s: float) -> APIRouter:
    routes = APIRouter()

    @routes.post(PREFIX)
    async def messages(request: Request) -> Response:
        raw = await body.read(request, limits)
        asked = await asyncio.to_thread(messages_request.read, raw, id=request_id(request))
        generation = generator.start(asked.request, trace=trace_of(request.headers.items()))
        return await answered(request, generation, MessagesAnswer(generation), stream=asked.stream, ping_s=ping_s)

    @routes.post(f"{PREFIX}/count_tokens")
    async def count_tokens(request: Request) -> dict[str, int]:
        raw = await body.read(request, limits)
        asked = await asyncio.to_thread(messages_request.read, raw, id=request_id(request), counting=True)
        return {"input_tokens": await generator.count(asked.request)}

    return routes
