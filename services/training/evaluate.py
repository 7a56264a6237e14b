"""How much of a drafter's drafts the target would accept, measured on text that the target wrote.

The text is what the target says whatever is drafted, so a round needs no target: draft from the anchor, keep the drafts
that the text agrees with and one token more, and go on from there. Drafts are the likeliest ones, unless it is said how
the text was drawn: then a drafter draws as it would beside that target.

Shape key: P positions, K taps of the drafter, H hidden size.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from torch import Tensor

from services.drafter.feeding import feed_of
from services.drafter.interface import AnyDrafter, Ask, Opening
from services.engine.sampling import SamplingParams
from services.training.answer import Answer

LANES = 16  # sequences that are drafted for at once


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer; the drafter's own taps of all its ids but the last [P, K, H], None for a drafter without any; and how
    the answer was drawn, None if nobody knows."""

    answer: Answer
    taps_PKH: Tensor | None = None
    params: SamplingParams | None = None


@dataclass(slots=True)
class Acceptance:
    """Entry i of `drafted` and `accepted` counts the drafts of position i + 1 of a draft. `tokens` were gained in
    `rounds`: the accepted ones and the target's own of each round."""

    rounds: int = 0
    tokens: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds if self.rounds else 0.0

    @property
    def by_position(self) -> list[float]:
        """The share of rounds with a draft at a position in which it was accepted, with all before it."""
        return [kept / count for kept, count in zip(self.accepted, self.drafted, strict=True)]

    def add(self, drafted: int, accepted: int, tokens: int) -> None:
        self.rounds += 1
        self.tokens += tokens
        lacking = [0] * (drafted - len(self.drafted))
        self.drafted += lacking
        self.accepted += lacking
        for position in range(drafted):
            self.drafted[position] += 1
            self.accepted[position] += position < accepted

    def to_json(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "tokens": self.tokens,
            "tokens_per_round": round(self.tokens_per_round, 4),
            "by_position": [round(share, 4) for share in self.by_position],
        }


def acceptance(
    drafter: AnyDrafter,
    samples: Iterable[Sample],
    *,
    count: int,
    progress: Callable[[int], None] = lambda tokens: None,
) -> Acceptance:
    """With drafts of `count` tokens. `progress` is told how many tokens were gone through since the last time."""
    result = Acceptance()
    waiting, running = iter(samples), list[Walk]()
    while True:
        running += (walk for sample in islice(waiting, LANES - len(running)) if (walk := Walk(drafter, sample)).open())
        if not running:
            return result
        drafts = drafter.draft([Ask(walk.context, count) for walk in running])
        gained = [walk.judge(draft.ids, result) for walk, draft in zip(running, drafts, strict=True)]
        progress(sum(gained))
        running = [walk for walk in running if walk.feed()]


class Walk:
    """One sequence on its way: `anchor` is the position of the last token that is known."""

    def __init__(self, drafter: AnyDrafter, sample: Sample) -> None:
        self._drafter = drafter
        self._taps_PKH = sample.taps_PKH
        self._params = sample.params or SamplingParams(temperature=0.0, seed=0)
        self._ids = [*sample.answer.prompt_ids, *sample.answer.ids]
        self._anchor = len(sample.answer.prompt_ids)
        self._fed = 0
        self.context: Any = None

    def open(self) -> bool:
        """False when nothing comes after the first token."""
        description = self._drafter.description
        opening = Opening(
            first_id=self._ids[0],
            max_positions=len(self._ids),
            temperature=self._params.temperature,
            seed=self._params.seed,
            tap_layers=description.tap_layers,
            final_hidden=description.needs_final_hidden,
        )
        self.context = self._drafter.open(opening)
        return self.feed()

    def feed(self) -> bool:
        """Up to the anchor; False, and all is freed, when the anchor is the last token."""
        if self._anchor >= len(self._ids) - 1:
            self._drafter.close(self.context)
            return False
        taps_PKH = None if self._taps_PKH is None else self._taps_PKH[self._fed : self._anchor]
        self._drafter.absorb(self.context, feed_of(self._fed, self._ids[self._fed + 1 : self._anchor + 1], taps_PKH))
        self._fed = self._anchor
        return True

    def judge(self, draft: Sequence[int], result: Acceptance) -> int:
        """How many tokens the round gained."""
        text = self._ids[self._anchor + 1 :]
        compared = list(zip(draft, text, strict=False))
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], compared))
        gained = min(accepted + 1, len(text))
        result.add(len(compared), accepted, gained)
        self._anchor += gained
        return gained


def greedy(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Those that a target gives at temperature 0."""
    return (answer for answer in answers if answer.temperature == 0)
