"""The shapes of a chat's answer."""

from collections.abc import Sequence
from typing import Any

from tandem.v1.types_pb2 import Token

from services.gateway.choice import Delta
from services.gateway.finish import reason
from services.gateway.openai.answer import LEAST_LOGPROB, OpenAIAnswer
from services.text.tokenizer import Tokenizer


class ChatAnswer(OpenAIAnswer):
    PREFIX, WHOLE, CHUNK = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _gained(self, delta: Delta, *, first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if first else {}
        return {
            "index": delta.choice,
            "delta": role | {"content": delta.text},
            "logprobs": self._logprobs(delta.tokens),
            "finish_reason": None,
        } | self._ids(delta.tokens)

    def _finished(self, delta: Delta) -> dict[str, Any]:
        return {"index": delta.choice, "delta": {}, "logprobs": None, "finish_reason": reason(delta.finish)}

    def _choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        content = "".join(delta.text for delta in deltas)
        tokens = [token for delta in deltas for token in delta.tokens]
        return {
            "index": deltas[-1].choice,
            "message": {"role": "assistant", "content": content, "refusal": None},
            "logprobs": self._logprobs(tokens),
            "finish_reason": reason(deltas[-1].finish),
        } | self._ids(tokens)

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self._generation.request.logprobs is None:
            return None
        tokenizer = self._generation.served.tokenizer
        return {"content": [_token_logprobs(token, tokenizer) for token in tokens], "refusal": None}


def _token_logprobs(token: Token, tokenizer: Tokenizer) -> dict[str, Any]:
    top = [_logprob(each.id, each.logprob, tokenizer) for each in token.top]
    return _logprob(token.id, token.logprob, tokenizer) | {"top_logprobs": top}


def _logprob(id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "token": tokenizer.token_text(id),
        "bytes": list(tokenizer.token_bytes(id)),
        "logprob": max(logprob, LEAST_LOGPROB),
    }
