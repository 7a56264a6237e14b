"""What OpenAI's two ways to generate have in common: heads, tails, and the order of a stream."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, ClassVar

from sse_starlette import ServerSentEvent
from tandem.v1.types_pb2 import Token

from services.gateway.choice import Delta, End
from services.gateway.generate import Generation
from services.gateway.openai import errors
from services.gateway.openai.fields import Wanted
from services.gateway.report import as_json
from services.gateway.rest.answer import event
from services.gateway.together import Together

LEAST_LOGPROB = -9999.0
"""What OpenAI writes for minus infinity, which JSON does not have."""


class OpenAIAnswer(ABC):
    """One answer, or one data frame a round, one for each end, then the end mark."""

    PREFIX: ClassVar[str]
    WHOLE: ClassVar[str]
    CHUNK: ClassVar[str]

    def __init__(self, generation: Generation | Together, wanted: Wanted) -> None:
        self._generation = generation
        self._wanted = wanted
        self._id = f"{self.PREFIX}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    @abstractmethod
    def _gained(self, delta: Delta, *, first: bool) -> dict[str, Any]:
        """A choice of a chunk: what a round brought."""

    @abstractmethod
    def _finished(self, delta: Delta) -> dict[str, Any]:
        """A choice of a chunk: its end."""

    @abstractmethod
    def _choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """A choice of a whole answer."""

    def whole(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """Choices stand in the order of their index."""
        end = deltas[-1].end
        assert end is not None
        by_choice: list[list[Delta]] = [[] for _ in range(self._generation.choices)]
        for delta in deltas:
            by_choice[delta.choice].append(delta)
        choices = [self._choice(own) for own in by_choice]
        return self._head(self.WHOLE) | {"choices": choices} | self._tail(end, usage=True)

    async def events(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[ServerSentEvent, None]:
        begun, usage = set[int](), self._wanted.usage
        each = {"usage": None} if usage else {}
        async for delta in deltas:
            yield self._chunk(self._gained(delta, first=delta.choice not in begun), **each)
            begun.add(delta.choice)
            tail = self._tail(delta.end, usage=usage) if delta.end else {}
            if delta.finish:
                yield self._chunk(self._finished(delta), **(each if usage else tail))
            if tail and usage:
                yield self._chunk(**tail)
        yield ServerSentEvent("[DONE]")

    def failure(self, error: Exception) -> ServerSentEvent:
        return event(errors.refusal(error, self._generation.request.id).body)

    def ping(self) -> ServerSentEvent:
        return ServerSentEvent(comment="ping")

    def _head(self, kind: str) -> dict[str, Any]:
        served = self._generation.served.description
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": served.model,
            "system_fingerprint": served.fingerprint,
        }

    def _tail(self, end: End, *, usage: bool) -> dict[str, Any]:
        """What is known at the end only."""
        request = self._generation.request
        report = as_json(end.report, stats=request.stats, audit=request.audit, explain=request.explain)
        return ({"usage": _usage(end)} if usage else {}) | {"speculation": report}

    def _chunk(self, *choices: dict[str, Any], **more: Any) -> ServerSentEvent:  # noqa: ANN401
        return event(self._head(self.CHUNK) | {"choices": choices} | more)

    def _ids(self, tokens: Sequence[Token]) -> dict[str, Any]:
        return {"token_ids": [token.id for token in tokens]} if self._wanted.token_ids else {}


def _usage(end: End) -> dict[str, int]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }
