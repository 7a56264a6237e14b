"""Where a sequence ends. The target owns every cut, and makes it before anything is committed.

Several tokens arrive at once, so the end may lie inside an accepted draft: the earliest of stop token, stop string and
limit wins, and at one token a stop wins over the limit. The token that completes a stop is the last one kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.target.request import Request
from services.text.detokenize import Detokenizer
from services.text.stops import StopMatcher
from services.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Finish:
    """`kind` is stop_token, stop_string, length or context; `text_offset` counts characters of the decoded output."""

    kind: str
    stop_id: int | None = None
    stop_string: str | None = None
    text_offset: int | None = None


class Cutter:
    """The end conditions of one sequence. Only kept tokens ever pass through it, so it never needs undoing."""

    def __init__(self, request: Request, tokenizer: Tokenizer) -> None:
        self._request = request
        self._generated = 0
        self._text = Detokenizer(tokenizer) if request.stop_strings else None
        self._stops = StopMatcher(request.stop_strings)
        self._unsearched = 0  # characters decoded before min_tokens was reached; no stop is looked for in them

    def cut(self, tokens: Sequence[int]) -> tuple[int, Finish | None]:
        """Return how many of `tokens` are kept, and the end if they reach it."""
        for index, token in enumerate(tokens):
            if finish := self._keep(token):
                return index + 1, finish
        return len(tokens), None

    def _keep(self, token: int) -> Finish | None:
        request = self._request
        self._generated += 1
        if token in request.stop_ids:
            return Finish("stop_token", stop_id=token)
        if finish := self._search(token):
            return finish
        if self._generated >= request.max_new:
            return Finish("context" if request.open_ended else "length")
        return None

    def _search(self, token: int) -> Finish | None:
        if self._text is None:
            return None
        text = self._text.push([token])
        if self._generated < self._request.sampling.min_tokens:
            self._unsearched += len(text)
            return None
        match = self._stops.push(text)
        if match is None:
            return None
        return Finish("stop_string", stop_string=match.string, text_offset=self._unsearched + match.offset)
