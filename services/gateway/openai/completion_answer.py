"""The shapes of a completion's answer."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tandem.v1.types_pb2 import Token

from services.gateway.choice import Delta
from services.gateway.finish import reason
from services.gateway.generate import Generation
from services.gateway.openai.answer import LEAST_LOGPROB, OpenAIAnswer
from services.gateway.openai.fields import Wanted
from services.gateway.together import Together
from services.text.detokenize import Detokenizer
from services.text.tokenizer import Tokenizer


class CompletionAnswer(OpenAIAnswer):
    PREFIX, WHOLE, CHUNK = "cmpl", "text_completion", "text_completion"

    def __init__(self, generation: Generation | Together, wanted: Wanted) -> None:
        super().__init__(generation, wanted)
        self._offsets = defaultdict[int, Offsets](lambda: Offsets(generation.served.tokenizer))

    def _gained(self, delta: Delta, *, first: bool) -> dict[str, Any]:
        return {
            "index": delta.choice,
            "text": delta.text,
            "logprobs": self._logprobs(delta.choice, delta.tokens),
            "finish_reason": None,
        } | self._ids(delta.tokens)

    def _finished(self, delta: Delta) -> dict[str, Any]:
        return {"index": delta.choice, "text": "", "logprobs": None, "finish_reason": reason(delta.finish)}

    def _choice(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        tokens, last = [token for delta in deltas for token in delta.tokens], deltas[-1]
        return {
            "index": last.choice,
            "text": "".join(delta.text for delta in deltas),
            "logprobs": self._logprobs(last.choice, tokens),
            "finish_reason": reason(last.finish),
        } | self._ids(tokens)

    def _logprobs(self, choice: int, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self._generation.request.logprobs is None:
            return None
        tokenizer = self._generation.served.tokenizer
        return {
            "tokens": [_name(token.id, tokenizer) for token in tokens],
            "token_logprobs": [max(token.logprob, LEAST_LOGPROB) for token in tokens],
            "top_logprobs": [_top(token, tokenizer) for token in tokens],
            "text_offset": self._offsets[choice].of(tokens),
        }


class Offsets:
    """Where in the text of a choice each of its tokens begins; those of one character begin together."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._chars = 0

    def of(self, tokens: Sequence[Token]) -> list[int]:
        offsets = []
        for token in tokens:
            offsets.append(self._chars)
            self._chars += len(self._detokenizer.push([token.id]))
        return offsets


def _top(token: Token, tokenizer: Tokenizer) -> dict[str, float]:
    """By name: the likeliest, and the drawn one wherever it stands."""
    entries = [(each.id, each.logprob) for each in token.top] + [(token.id, token.logprob)]
    return {_name(id, tokenizer): max(logprob, LEAST_LOGPROB) for id, logprob in entries}


def _name(id: int, tokenizer: Tokenizer) -> str:
    """The token's text; part of a character has none, and goes by its bytes as OpenAI writes them."""
    raw = tokenizer.token_bytes(id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
