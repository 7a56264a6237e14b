"""Which control tokens of a rendered prompt the template wrote, and which are only characters somebody typed.

A template is any program over the messages, so nothing is assumed of it but this: shown the same messages with a few
characters exchanged, it does the same. Those are the characters control tokens begin and end with. Exchanged for
private ones wherever a user wrote them, they leave no user a way to finish a control token, not even out of pieces
that the template puts together; what still reads as control after that is the template's own."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.errors import InvalidRequest
from services.text.controls import Controls

PRIVATE = range(0x100000, 0x10F5E0)  # a plane that Unicode leaves to its users

Render = Callable[[Mapping[str, Any]], str]


class Marks:
    """Exchanges the edges of control tokens for characters that occur in none of `taken`."""

    def __init__(self, controls: Controls, taken: str) -> None:
        used = set() if taken.isascii() else set(taken)
        free = (chr(code) for code in PRIVATE if chr(code) not in used)
        edges = sorted({text.strip()[place] for text in controls.tokens for place in (0, -1)})
        self._pairs = list(zip(edges, free, strict=False))

    def put(self, value: Any, spared: re.Pattern[str] | None = None) -> Any:  # noqa: ANN401
        """The same value, exchanged in every text of it except inside matches of `spared`."""
        if isinstance(value, str):
            if spared is None:
                return self._exchange(value)
            parts = re.split(f"({spared.pattern})", value)
            return "".join(part if place % 2 else self._exchange(part) for place, part in enumerate(parts))
        if isinstance(value, Mapping):
            return {self._put_key(key, spared): self.put(item, spared) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.put(item, spared) for item in value]
        return value

    def _put_key(self, key: Any, spared: re.Pattern[str] | None) -> Any:  # noqa: ANN401
        """Names by which a template finds things are left alone."""
        return key if isinstance(key, str) and key.isidentifier() else self.put(key, spared)

    def undo(self, text: str) -> str:
        for edge, mark in self._pairs:
            text = text.replace(mark, edge)
        return text

    def _exchange(self, text: str) -> str:
        for edge, mark in self._pairs:
            text = text.replace(edge, mark)
        return text


def divide(controls: Controls, render: Render, given: Mapping[str, Any], sought: Iterable[str]) -> list[str | int]:
    """The rendered prompt, cut at the template's own control tokens.

    `sought`: texts that the template may look for in what users wrote. If it acts on one (drops what stands before
    `</think>`, say), that text has to keep its meaning; InvalidRequest if it is a special token."""
    trial = _Trial(controls, render, given)
    if (own := trial.without([])) is not None:
        return own
    special = [text for text, token in controls.tokens.items() if token.special]
    written = "".join(_texts(given))
    kept = {
        text for text in sought if len(text) > 1 and text in written and not any(token in text for token in special)
    }
    if (own := trial.without(kept)) is None:
        raise InvalidRequest("the chat template takes some of the text in the messages for its own control tokens")
    for text in sorted(kept & controls.tokens.keys()):
        if (fewer := trial.without(kept - {text})) is not None:
            own, kept = fewer, kept - {text}
    return own


class _Trial:
    """One prompt, and whether it can be explained by showing the template marked messages."""

    def __init__(self, controls: Controls, render: Render, given: Mapping[str, Any]) -> None:
        self._controls, self._render, self._given = controls, render, given
        self._prompt = render(given)
        self._pieces = controls.split(self._prompt)
        self._marks = Marks(controls, self._prompt)
        self._special = {token.id for token in controls.tokens.values() if token.special}

    def without(self, spared: Iterable[str]) -> list[str | int] | None:
        """The prompt's pieces when all but the spared texts are marked; None when the template then acts otherwise."""
        marked = self._marks.put(self._given, _any_of(spared))
        if marked == self._given:
            return self._pieces
        if spared and not self._special.isdisjoint(self._controls.split("".join(_texts(marked)))):
            return None
        try:
            shown = self._render(marked)
        except Exception:  # it did not fail on the real ones
            return None
        pieces = self._controls.split(shown)
        if _ids(pieces) == _ids(self._pieces):
            return self._pieces  # nothing a user wrote reads as control
        if self._marks.undo(shown) != self._prompt:
            return None
        return [self._marks.undo(piece) if isinstance(piece, str) else piece for piece in pieces]


def _ids(pieces: Iterable[str | int]) -> list[int]:
    return [piece for piece in pieces if isinstance(piece, int)]


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _texts(value: Any) -> Iterable[str]:  # noqa: ANN401
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (*_texts(key), *_texts(item))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
