"""The text of one choice that a client may see: whole characters, and nothing that may yet become a stop string.

The target finds every stop and says where the text ends; here text is only held back and cut there."""

from collections.abc import Sequence

from services.text.detokenize import Detokenizer
from services.text.stops import StopMatcher
from services.text.tokenizer import Tokenizer


class VisibleText:
    """Fed with the kept tokens of a choice, round by round."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], *, min_tokens: int) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stop)
        self._unsearched_tokens = max(min_tokens - 1, 0)  # the target looks for no stop in their text
        self._pending = ""
        self._shown = 0  # characters given out

    def push(self, ids: Sequence[int]) -> str:
        """What became certain with these tokens."""
        for id in ids:
            text = self._detokenizer.push([id])
            self._pending += text
            if self._unsearched_tokens:
                self._unsearched_tokens -= 1
            else:
                self._matcher.push(text)
        return self._give(len(self._pending) - self._matcher.held)

    def finish(self, ids: Sequence[int], *, end: int | None) -> str:
        """The last tokens' text, up to `end` characters of the whole output where a stop string cut it."""
        self._pending += self._detokenizer.push(ids) + self._detokenizer.flush()
        return self._give(len(self._pending) if end is None else end - self._shown)

    def _give(self, count: int) -> str:
        given, self._pending = self._pending[: max(count, 0)], self._pending[max(count, 0) :]
        self._shown += len(given)
        return given
