"""The shapes of an answer: one message, or the events that build it up."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from sse_starlette import ServerSentEvent
from tandem.v1.target_pb2 import Finish

from services.gateway.anthropic import errors
from services.gateway.choice import Delta, End
from services.gateway.finish import kind
from services.gateway.generate import Generation
from services.gateway.report import as_json
from services.gateway.rest.answer import event

STOP_REASONS = {
    "stop_token": "end_turn",
    "stop_string": "stop_sequence",
    "grammar": "end_turn",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
}


class MessagesAnswer:
    """Its one block is text, also where the model says nothing."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._id = f"msg_{uuid.uuid4().hex}"

    def whole(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        last = deltas[-1]
        assert last.end is not None
        block = {"type": "text", "text": "".join(delta.text for delta in deltas)}
        return self._message([block], _usage(last.end.prompt_tokens, last.end)) | self._end(last.finish, last.end)

    async def events(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[ServerSentEvent, None]:
        await self._generation.prepared.wait()
        prompt = self._generation.prompt_tokens
        if prompt is not None:  # otherwise the first delta is an error
            message = self._message([], _usage(prompt, None)) | {"stop_reason": None, "stop_sequence": None}
            yield _event("message_start", message=message)
            yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        async for delta in deltas:
            if delta.text:
                yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": delta.text})
            if delta.end:
                yield _event("content_block_stop", index=0)
                end = self._end(delta.finish, delta.end)
                report, usage = end.pop("speculation"), _usage(delta.end.prompt_tokens, delta.end)
                yield _event("message_delta", delta=end, usage=usage, speculation=report)
                yield _event("message_stop")

    def failure(self, error: Exception) -> ServerSentEvent:
        body = errors.refusal(error, self._generation.request.id).body
        return event(body, name=body["type"])

    def ping(self) -> ServerSentEvent:
        return _event("ping")

    def _message(self, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._generation.served.description.model,
            "content": content,
            "usage": usage,
        }

    def _end(self, finish: Finish | None, end: End) -> dict[str, Any]:
        request, tokenizer = self._generation.request, self._generation.served.tokenizer
        reason, sequence = STOP_REASONS[kind(finish)], None
        if finish and finish.HasField("stop_string"):
            sequence = finish.stop_string
        elif finish and finish.HasField("stop_id") and finish.stop_id in request.stop_ids:
            reason, sequence = "stop_sequence", tokenizer.token_text(finish.stop_id)
        report = as_json(end.report, stats=request.stats, audit=request.audit, explain=request.explain)
        return {"stop_reason": reason, "stop_sequence": sequence, "speculation": report}


def _event(type: str, **values: Any) -> ServerSentEvent:  # noqa: ANN401
    return event({"type": type, **values}, name=type)


def _usage(prompt_tokens: int, end: End | None) -> dict[str, int]:
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": end.completion_tokens if end else 0,
    }
