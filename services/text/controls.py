"""Control tokens as text: finding them in a prompt that may be trusted to mean them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Pieces = Sequence[str | int]
"""A prompt taken apart: text, which never becomes control, and the ids of control tokens between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """`lstrip` and `rstrip`: the token takes the white space on that side with it."""

    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


class Controls:
    """The control tokens of one tokenizer."""

    def __init__(self, tokens: Mapping[str, Control]) -> None:
        self.tokens = dict(tokens)
        self._pattern = _any_of(self.tokens)

    def split(self, text: str) -> list[str | int]:
        """Cut text at every control token in it, the longest where several begin, as tokenizers do."""
        pieces: list[str | int] = []
        end = 0
        for match in self._pattern.finditer(text):
            token = self.tokens[match.group()]
            start, stop = match.span()
            if token.single_word and (_is_word(text[max(start - 1, 0) : start]) or _is_word(text[stop : stop + 1])):
                continue
            pieces += [text[end:start], token.id]
            end = stop
        pieces.append(text[end:])
        return self._trimmed(pieces)

    def _trimmed(self, pieces: list[str | int]) -> list[str | int]:
        by_id = {token.id: token for token in self.tokens.values() if token.lstrip or token.rstrip}
        for place, piece in enumerate(pieces):
            if not isinstance(piece, int) or (token := by_id.get(piece)) is None:
                continue
            before, after = pieces[place - 1], pieces[place + 1]
            if token.lstrip and isinstance(before, str):
                pieces[place - 1] = before.rstrip()
            if token.rstrip and isinstance(after, str):
                pieces[place + 1] = after.lstrip()
        return [piece for piece in pieces if piece != ""]


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _any_of(words: Mapping[str, Any]) -> re.Pattern[str]:
    """A pattern for the longest of the words, shaped like a tree of their letters: a thousand alternatives side by
    side would all be tried wherever text merely begins like them."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return re.compile(_branches(tree) or "(?!)")


def _branches(node: Mapping[str, Any]) -> str:
    branches = [re.escape(letter) + _branches(below) for letter, below in node.items() if letter]
    if "" not in node:
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
    return f"(?:{'|'.join(branches)})?" if branches else ""
