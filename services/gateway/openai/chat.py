"""POST /v1/chat/completions."""

import asyncio
from contextlib import aclosing

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.gateway.choice import Delta
from services.gateway.generate import Generation, Generator
from services.gateway.openai import body, chat_request
from services.gateway.openai.answer import ChatAnswer
from services.gateway.openai.connected import settled
from services.gateway.openai.stream import ChatStream


def chat_routes(generator: Generator, *, max_body_bytes: int, ping_s: float) -> APIRouter:
    routes = APIRouter()

    @routes.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        raw = await body.read(request, limit=max_body_bytes)
        asked = await asyncio.to_thread(chat_request.read, raw)
        generation = generator.start(asked.request)
        if not asked.stream:
            whole = asyncio.create_task(_whole(generation))
            await settled(whole, request)
            return JSONResponse(ChatAnswer(generation, token_ids=asked.token_ids).completion(whole.result()))
        first = asyncio.create_task(anext(generation.deltas))
        # What is refused is refused with a status of its own; a client that waits long hears of it in the stream.
        if await settled(first, request, within_s=ping_s):
            first.result()
        answer = ChatAnswer(generation, token_ids=asked.token_ids)
        return ChatStream(generation, first, answer, include_usage=asked.include_usage, ping_s=ping_s)

    return routes


async def _whole(generation: Generation) -> list[Delta]:
    async with aclosing(generation.deltas) as deltas:
        return [delta async for delta in deltas]
