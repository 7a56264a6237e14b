"""Ids to text as they come, a piece at a time, in constant time a token."""

from collections.abc import Iterable

from services.text.tokenizer import Tokenizer


class Detokenizer:
    """One output. All that `push` returned and what `flush` returns is exactly `tokenizer.decode` of all ids; half a
    character is never shown, and U+FFFD only where the whole text has it."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._stages = tokenizer.stages()

    def push(self, ids: Iterable[int]) -> str:
        """The text that became certain with these ids."""
        result = []
        for id in ids:
            if (piece := self._tokenizer.token(id, skip_special=self._skip_special)) is None:
                continue
            for stage in self._stages:
                piece = stage.push(piece)
            result.append(piece)
        return "".join(result)

    def flush(self) -> str:
        """The rest, once no more ids will come."""
        rest = ""
        for stage in self._stages:
            rest = (stage.push(rest) if rest else "") + stage.flush()
        return rest
