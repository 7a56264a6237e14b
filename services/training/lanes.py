"""Many texts written side by side: one row of each in a forward, and a new text in the place of each that ends.

What a text becomes depends on its task alone while the engine is exact, so the company it is written in, and with it an
interruption, changes nothing.

Shape key: T rows of a forward, P positions of a text, K taps (layers ascending, then the final hidden state), H hidden
size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.batch import Block, Forward
from services.engine.engine import Engine
from services.engine.sampling import SamplingParams
from services.engine.sampling.draw import draw
from services.training.answer import Answer

FIRST_ROWS = 512  # rows of new prompts in one forward


@dataclass(frozen=True, slots=True)
class Captured:
    """Which states of the target are kept for every position."""

    layers: tuple[int, ...] = ()
    final_hidden: bool = False

    @property
    def count(self) -> int:
        return len(self.layers) + self.final_hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Write at most `most` ids after `prompt_ids`, up to and including one of `stop_ids`. `number` is the caller's.

    With `given`, these ids are taken for the answer, and only the states are computed."""

    number: int
    prompt_ids: Sequence[int]
    params: SamplingParams
    most: int = 0
    stop_ids: frozenset[int] = frozenset()
    capture: bool = True
    given: Sequence[int] = ()

    @property
    def rows(self) -> int:
        return len(self.prompt_ids) + max(self.most, len(self.given))


@dataclass(frozen=True, slots=True)
class Written:
    """`taps_PKH` in the engine's dtype, for all ids but the last; None where nothing was to be captured."""

    task: Task
    ids: Sequence[int]
    taps_PKH: Tensor | None

    @property
    def answer(self) -> Answer:
        return Answer(self.task.prompt_ids, self.ids, self.task.params.temperature)


class Lane:
    def __init__(self, engine: Engine, task: Task, captured: Captured) -> None:
        self.task = task
        self.slot = engine.open(task.rows)
        self.ids: list[int] = list(task.given)
        self.rows: Sequence[int] = [*task.prompt_ids, *task.given[:-1]]  # of the next forward
        self._taps_PKH: Tensor | None = None
        if task.capture and captured.count:
            self._taps_PKH = torch.empty(task.rows, captured.count, engine.hidden_size, dtype=engine.dtype)

    @property
    def block(self) -> Block:
        return Block(slot=self.slot, ids=self.rows, wanted=0 if self.task.given else 1)

    def advance(self, states_TKH: Tensor | None, token: int | None) -> Written | None:
        """Keep the forward's rows, and the token drawn from them."""
        begin, end = self.slot.length, self.slot.length + len(self.rows)
        if self._taps_PKH is not None and states_TKH is not None:
            self._taps_PKH[begin:end] = states_TKH
        self.slot.commit(len(self.rows))
        if token is not None:
            self.ids.append(token)
            self.rows = [token]
            if len(self.ids) < self.task.most and token not in self.task.stop_ids:
                return None
        return Written(self.task, self.ids, None if self._taps_PKH is None else self._taps_PKH[:end])


def write(engine: Engine, captured: Captured, next_task: Callable[[], Task | None], *, lanes: int) -> Iterator[Written]:
    """Texts as they end. `next_task` is asked whenever there is room; None: there is none now, and when nothing runs,
    none at all."""
    running: list[Lane] = []
    try:
        while True:
            fresh = 0
            while len(running) < lanes and fresh < FIRST_ROWS and (task := next_task()):
                running.append(Lane(engine, task, captured))
                fresh += len(running[-1].rows)
            if not running:
                return
            for lane, written in _step(engine, captured, running):
                engine.close(lane.slot)
                running.remove(lane)
                yield written
    finally:
        for lane in running:
            engine.close(lane.slot)


def _step(engine: Engine, captured: Captured, running: Sequence[Lane]) -> list[tuple[Lane, Written]]:
    capturing = any(lane.task.capture for lane in running)
    layers, hidden = (captured.layers, captured.final_hidden) if capturing else ((), False)
    forward = engine.forward([lane.block for lane in running], taps=layers, hidden=hidden)
    drawing = [lane for lane in running if not lane.task.given]
    positions = [lane.slot.length + len(lane.rows) for lane in drawing]
    tokens = iter(draw(forward.logits_RV, [lane.task.params for lane in drawing], positions) if drawing else ())
    states_TKH = _states(forward, layers)
    ended, begin = [], 0
    for lane in running:
        end = begin + len(lane.rows)
        own_TKH = None if states_TKH is None else states_TKH[begin:end]
        if written := lane.advance(own_TKH, None if lane.task.given else next(tokens)):
            ended.append((lane, written))
        begin = end
    return ended


def _states(forward: Forward, layers: Sequence[int]) -> Tensor | None:
    states = [forward.taps[layer] for layer in layers]
    if forward.hidden_TH is not None:
        states.append(forward.hidden_TH)
    return torch.stack(states, 1) if states else None
