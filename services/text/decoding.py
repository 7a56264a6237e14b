"""A tokenizer's decoder as stages that take one piece at a time, so that text comes out as soon as it is certain.

Each stage does to a stream what the decoder of the same name in the `tokenizers` library does to a whole list; a
decoder that cannot be split up like this is refused when the tokenizer is loaded."""

import codecs
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from services.errors import BadCheckpoint

BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


class Stage(Protocol):
    def push(self, piece: str) -> str: ...
    def flush(self) -> str: ...


class Joined:
    """No decoder: tokens are words, with a space between them."""

    def __init__(self) -> None:
        self._first = True

    def push(self, piece: str) -> str:
        lead, self._first = "" if self._first else " ", False
        return lead + piece

    def flush(self) -> str:
        return ""


class ByteLevel:
    """Every letter stands for a byte. Bytes that are no UTF-8 become U+FFFD, but not before that is certain."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: str) -> str:
        return self._decoder.decode(level_bytes(piece))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class Replace:
    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def push(self, piece: str) -> str:
        return piece.replace(self._old, self._new)

    def flush(self) -> str:
        return ""


class Metaspace:
    """A mark stands for a space; in the first token, where it was only put there by the encoder, for nothing."""

    def __init__(self, mark: str, prepends: bool) -> None:
        self._mark = mark
        self._space = "" if prepends else " "

    def push(self, piece: str) -> str:
        space, self._space = self._space, " "
        return piece.replace(self._mark, space)

    def flush(self) -> str:
        return ""


class ByteFallback:
    """Tokens like `<0xE2>` are bytes. A run of them is one word to the decoder: if any of it is broken, all of it
    is, so nothing of a run is certain before the run ends."""

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, piece: str) -> str:
        if match := BYTE.fullmatch(piece):
            self._run.append(int(match[1], 16))
            return ""
        return self.flush() + piece

    def flush(self) -> str:
        run, self._run = self._run, bytearray()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return "\ufffd" * len(run)


class Strip:
    """Take up to `count` of a character from the beginning of the whole text."""

    def __init__(self, character: str, count: int) -> None:
        self._character, self._count = character, count

    def push(self, piece: str) -> str:
        while self._count and piece:
            if not piece.startswith(self._character):
                self._count = 0
                break
            piece = piece[1:]
            self._count -= 1
        return piece

    def flush(self) -> str:
        return ""


def stages(decoder: Mapping[str, Any] | None) -> Callable[[], list[Stage]]:
    """A maker of fresh stages; BadCheckpoint for a decoder that is none of ours."""
    if decoder is None:
        return lambda: [Joined()]
    parts = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    makers = [_maker(part, [before["type"] for before in parts[:place]]) for place, part in enumerate(parts)]
    return lambda: [maker() for maker in makers if maker]


def _maker(part: Mapping[str, Any], before: list[str]) -> Callable[[], Stage] | None:
    """`before` names the stages ahead: some stages only work per token, and some only on the joined text."""
    joined = "Fuse" in before or "ByteLevel" in before
    match part:
        case {"type": "Fuse"}:
            return None
        case {"type": "ByteLevel"} if not before:
            return ByteLevel
        case {"type": "ByteFallback"} if not joined:
            return ByteFallback
        case {"type": "Metaspace", "replacement": mark} if not before:
            return lambda: Metaspace(mark, part.get("prepend_scheme", "always") != "never")
        case {"type": "Replace", "pattern": {"String": old}, "content": new} if not joined or len(old) == 1:
            return lambda: Replace(old, new)
        case {"type": "Strip", "content": character, "start": count, "stop": 0} if joined:
            return lambda: Strip(character, count)
    raise BadCheckpoint(f"tokenizer.json: the decoder {part} after {before or 'nothing'} is not supported")


def token_bytes(decoder: Mapping[str, Any] | None, token: str) -> bytes:
    """What one token adds to a text that already began."""
    parts = [] if decoder is None else decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    for part in parts:
        match part:
            case {"type": "ByteLevel"}:
                return level_bytes(token)
            case {"type": "ByteFallback"} if found := BYTE.fullmatch(token):
                return bytes([int(found[1], 16)])
            case {"type": "Metaspace", "replacement": mark}:
                token = token.replace(mark, " ")
            case {"type": "Replace", "pattern": {"String": old}, "content": new}:
                token = token.replace(old, new)
    return token.encode()


def level_bytes(token: str) -> bytes:
    """A token with a letter that stands for no byte is plain text, like `<｜end▁of▁sentence｜>`."""
    try:
        return bytes([LETTERS[letter] for letter in token])
    except KeyError:
        return token.encode()


def _letters() -> dict[str, int]:
    """GPT-2's table: printable bytes are their own letters, the others follow from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


LETTERS = _letters()
