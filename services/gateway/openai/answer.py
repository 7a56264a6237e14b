"""The shapes of a chat's answer: one completion, or the chunks of a stream."""

import time
from collections.abc import Sequence
from typing import Any

from tandem.v1.target_pb2 import Finish
from tandem.v1.types_pb2 import Token

from services.errors import Internal
from services.gateway.choice import Delta, End
from services.gateway.generate import Generation
from services.gateway.report import as_json
from services.text.tokenizer import Tokenizer
from services.wire.codec import FINISH_KINDS

FINISH_REASONS = {
    "stop_token": "stop",
    "stop_string": "stop",
    "grammar": "stop",
    "length": "length",
    "context": "length",
}
LEAST_LOGPROB = -9999.0
"""What OpenAI writes for minus infinity, which JSON does not have."""


class ChatAnswer:
    """What every chunk, or the completion, says of one generation; with `token_ids`, the ids of every token too."""

    def __init__(self, generation: Generation, *, token_ids: bool) -> None:
        self._generation = generation
        self._token_ids = token_ids
        self._created = int(time.time())

    def _head(self, kind: str) -> dict[str, Any]:
        served = self._generation.served.description
        return {
            "id": f"chatcmpl-{self._generation.request.id}",
            "object": kind,
            "created": self._created,
            "model": served.model,
            "system_fingerprint": served.fingerprint,
        }

    def tail(self, end: End, *, usage: bool) -> dict[str, Any]:
        """What is known at the end only."""
        report = as_json(end.report, stats=self._generation.request.stats)
        return ({"usage": _usage(end)} if usage else {}) | {"speculation": report}

    def chunk(self, *choices: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
        return self._head("chat.completion.chunk") | {"choices": choices} | more

    def gained(self, delta: Delta, *, first: bool) -> dict[str, Any]:
        """A choice of a chunk: what a round brought."""
        role = {"role": "assistant"} if first else {}
        return {
            "index": delta.choice,
            "delta": role | {"content": delta.text},
            "logprobs": self._logprobs(delta.tokens),
            "finish_reason": None,
        } | self._ids(delta.tokens)

    def finished(self, delta: Delta) -> dict[str, Any]:
        """A choice of a chunk: its end."""
        return {"index": delta.choice, "delta": {}, "logprobs": None, "finish_reason": finish_reason(delta.finish)}

    def completion(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        """The whole answer. Choices stand in the order of their index."""
        end = deltas[-1].end
        assert end is not None
        by_choice = [[delta for delta in deltas if delta.choice == n] for n in range(self._generation.request.n)]
        choices = [self._choice(own) for own in by_choice]
        return self._head("chat.completion") | {"choices": choices} | self.tail(end, usage=True)

    def _choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        content = "".join(delta.text for delta in deltas)
        tokens = [token for delta in deltas for token in delta.tokens]
        return {
            "index": deltas[-1].choice,
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": self._logprobs(tokens),
            "finish_reason": finish_reason(deltas[-1].finish),
        } | self._ids(tokens)

    def _ids(self, tokens: Sequence[Token]) -> dict[str, Any]:
        return {"token_ids": [token.id for token in tokens]} if self._token_ids else {}

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self._generation.request.logprobs is None:
            return None
        tokenizer = self._generation.served.tokenizer
        return {"content": [_token_logprobs(token, tokenizer) for token in tokens], "refusal": None}


def finish_reason(finish: Finish | None) -> str:
    kind = FINISH_KINDS.name(finish.kind) if finish else None
    if kind is None:
        raise Internal("the target ended a sequence without saying why")
    return FINISH_REASONS[kind]


def _token_logprobs(token: Token, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_logprob(each.id, each.logprob, tokenizer) for each in token.top]
    return _logprob(token.id, token.logprob, tokenizer) | {"top_logprobs": top}


def _logprob(id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "token": tokenizer.token_text(id),
        "bytes": list(tokenizer.token_bytes(id)),
        "logprob": max(logprob, LEAST_LOGPROB),
    }


def _usage(end: End) -> dict[str, int]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }
