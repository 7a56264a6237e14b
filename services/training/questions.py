"""Which texts the target writes for a set of data: text n is a function of n and the seed, so a part that was lost is
made again as it was."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.engine.sampling import SamplingParams
from services.training.answer import Answer
from services.training.lanes import Task, Written
from services.training.prompts import Chats, Messages, built_in

TEMPERATURES = (0.0, 0.7, 0.0, 1.0)  # of text n, in turn
ATTEMPTS = 4  # at a user turn that is of use, before a built-in prompt takes its place
TURN_IDS = 160
OWN_SHARE = 0.75  # of prompts that the target writes, when the user brings none


class Source(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def longest(self) -> int:
        """Ids of the longest text, prompt and answer."""
        ...

    def first(self, number: int) -> Task | None:
        """What to write first for a text; None when it is left out."""
        ...

    def then(self, written: Written) -> Task | None:
        """What to write next for the same text; None: that was the answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Answers of at most `most_answer` ids to prompts of at most `most_prompt`; `own` are the user's prompts."""

    chats: Chats
    own: Sequence[Messages] | None
    size: int
    seed: int
    most_prompt: int
    most_answer: int

    @property
    def longest(self) -> int:
        return max(self.most_prompt, TURN_IDS) + max(self.most_answer, TURN_IDS)

    def first(self, number: int) -> Task | None:
        if self.own is not None:
            return self._question(number, self.own[number])
        header = self.chats.user_header
        if header and self._dice(number, "source").random() < OWN_SHARE:
            return self._turn(number, attempt=1)
        return self._built_in(number)

    def then(self, written: Written) -> Task | None:
        if written.task.capture:
            return None
        number, attempt = written.task.number, written.task.params.choice
        messages = self.chats.user_turn(written.ids)
        if messages is not None and (task := self._question(number, messages)):
            return task
        return self._turn(number, attempt=attempt + 1) if attempt < ATTEMPTS else self._built_in(number)

    def _built_in(self, number: int) -> Task | None:
        return self._question(number, built_in(self._dice(number, "built-in")))

    def _turn(self, number: int, *, attempt: int) -> Task:
        """Not captured, which tells it from an answer; the noise of each attempt is its own."""
        params = SamplingParams(temperature=1.0, seed=self._noise(number), choice=attempt)
        header, end = self.chats.user_header, self.chats.turn_end
        return Task(number=number, prompt_ids=header, params=params, most=TURN_IDS, stop_ids=end, capture=False)

    def _question(self, number: int, messages: Messages) -> Task | None:
        ids = self.chats.prompt_ids(messages)
        if not 0 < len(ids) <= self.most_prompt:
            return None
        params = SamplingParams(temperature=TEMPERATURES[number % len(TEMPERATURES)], seed=self._noise(number))
        stop_ids = self.chats.stop_ids
        return Task(number=number, prompt_ids=ids, params=params, most=self.most_answer, stop_ids=stop_ids)

    def _noise(self, number: int) -> int:
        return self._dice(number, "noise").getrandbits(62)

    def _dice(self, number: int, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {number} {purpose}")


class Known:
    """Answers that were written before; only the target's states are computed. Longer ones are cut."""

    def __init__(self, answers: Sequence[Answer], *, longest: int) -> None:
        self._answers = answers
        self.size = len(answers)
        self.longest = longest

    def first(self, number: int) -> Task | None:
        answer = self._answers[number]
        ids = answer.ids[: max(self.longest - len(answer.prompt_ids), 0)]
        params = SamplingParams(temperature=answer.temperature, seed=0)
        return Task(number=number, prompt_ids=answer.prompt_ids, params=params, given=ids) if ids else None

    def then(self, written: Written) -> Task | None:
        return None
