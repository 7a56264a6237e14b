"""POST /v1/chat/completions and POST /v1/completions."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.generate import Generator
from services.gateway.openai import chat_request, completion_request
from services.gateway.openai.chat_answer import ChatAnswer
from services.gateway.openai.completion_answer import CompletionAnswer
from services.gateway.rest import body
from services.gateway.rest.answered import answered
from services.gateway.rest.request_ids import request_id
from services.gateway.together import Together
from services.wire.trace import trace_of


def openai_routes(generator: Generator, *, limits: body.Limits, ping_s: float) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        raw = await body.read(request, limits)
        asked = await asyncio.to_thread(chat_request.read, raw, id=request_id(request))
        generation = generator.start(asked.request, trace=trace_of(request.headers.items()))
        answer = ChatAnswer(generation, asked.wanted)
        return await answered(request, generation, answer, stream=asked.stream, ping_s=ping_s)

    @routes.post("/v1/completions")
    async def completions(request: Request) -> Response:
        raw = await body.read(request, limits)
        asked = await asyncio.to_thread(
            completion_request.read, raw, id=request_id(request), max_choices=generator.max_choices
        )
        together = Together(generator, asked.requests, trace=trace_of(request.headers.items()))
        answer = CompletionAnswer(together, asked.wanted)
        return await answered(request, together, answer, stream=asked.stream, ping_s=ping_s)

    return routes
