"""How few tokens a text can become, told without encoding it: what every byte of it costs at the least.

That can be told where no byte gets lost: a BPE model with a token for each byte, behind steps that drop nothing.
"""

import json
import unicodedata
from typing import Any

import tokenizers

from services.text.controls import Pieces
from services.text.decoding import LETTERS

FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


class Fewest:
    """`longest` is what the longest token adds to a text, in bytes. None: nothing can be told of this tokenizer."""

    def __init__(self, inner: tokenizers.Tokenizer, longest: int) -> None:
        steps = [*_steps(inner.normalizer, "normalizers"), *_steps(inner.pre_tokenizer, "pretokenizers")]
        kinds = {step["type"] for step in steps}
        self._composes = "NFC" in kinds
        known = _has_every_byte(inner, by_letter="ByteLevel" in kinds) and all(map(_keeps, steps))
        self.longest = longest if known and not _swallows(inner) else None

    def __call__(self, pieces: Pieces) -> int:
        """A number of tokens that these pieces do not fall below."""
        ids = sum(isinstance(piece, int) for piece in pieces)
        if not self.longest:
            return ids
        size = sum(self._bytes(piece) for piece in pieces if isinstance(piece, str))
        return ids + -(-size // self.longest)

    def _bytes(self, text: str) -> int:
        size = len(text.encode(errors="surrogatepass"))
        if not self._composes or text.isascii():
            return size
        return min(size, len(unicodedata.normalize("NFC", text).encode(errors="surrogatepass")))


def _steps(part: Any, inner: str) -> list[dict[str, Any]]:  # noqa: ANN401  (the library has no common class)
    """A part of a tokenizer as the list of its steps."""
    state = {} if part is None else json.loads(part.__getstate__())
    steps: list[dict[str, Any]] = state.get(inner, [state] if state else [])
    return steps


def _keeps(step: dict[str, Any]) -> bool:
    """Whether every byte of a text is still there after the step, but for NFC."""
    match step:
        case {"type": "NFC" | "ByteLevel" | "Digits" | "Prepend" | "Metaspace"}:
            return True
        case {"type": "Split" | "Punctuation", "behavior": behaviour}:
            return bool(behaviour != "Removed")
        case {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}:
            return True
    return False


def _has_every_byte(inner: tokenizers.Tokenizer, *, by_letter: bool) -> bool:
    model = inner.model
    if not isinstance(model, tokenizers.models.BPE) or not (by_letter or model.byte_fallback):
        return False
    return all(model.token_to_id(token) is not None for token in (LETTERS if by_letter else FALLBACK))


def _swallows(inner: tokenizers.Tokenizer) -> bool:
    """Whether a token takes all blanks beside it along."""
    return any(token.lstrip or token.rstrip for token in inner.get_added_tokens_decoder().values() if not token.special)
