"""The compute thread's side of a stream: makes and frees contexts, absorbs feeds, drafts in batches.

One thread serves all streams, one job after another, so no context is ever touched by two jobs.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from services.drafter.contexts import FedSequence
from services.drafter.interface import Ask, Draft, Feed


@dataclass(frozen=True, slots=True)
class Task:
    """Absorb `feeds`, then draft; no drafts are wanted when only a feed is absorbed."""

    sequence: FedSequence
    feeds: Sequence[Feed]
    mode: str | None = None
    max_draft_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """One draft for each task, in order."""

    drafts: Sequence[Draft]
    elapsed_s: float


class Compute:
    """What one stream asks of the thread. `later` is done before the next job, in order."""

    def __init__(self, thread: Executor) -> None:
        self._thread = thread
        self._chores: list[Callable[[], None]] = []

    @property
    def idle(self) -> bool:
        return not self._chores

    def later(self, chore: Callable[[], None]) -> None:
        self._chores.append(chore)

    async def run(self, tasks: Sequence[Task] = ()) -> Done:
        """Shielded: a stream that ends must not take chores with it."""
        chores, self._chores = self._chores, []
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, _work, chores, tasks))


def _work(chores: Sequence[Callable[[], None]], tasks: Sequence[Task]) -> Done:
    for chore in chores:
        chore()
    began = time.perf_counter()
    batches: defaultdict[str, list[int]] = defaultdict(list)
    for index, task in enumerate(tasks):
        task.sequence.absorb(task.feeds)
        if task.mode is not None and task.max_draft_tokens:
            batches[task.mode].append(index)
    drafts = [Draft()] * len(tasks)
    for mode, batch in batches.items():
        asks = [Ask(tasks[index].sequence.contexts[mode], tasks[index].max_draft_tokens) for index in batch]
        drafter = tasks[batch[0]].sequence.drafters[mode]
        for index, draft in zip(batch, drafter.draft(asks), strict=True):
            drafts[index] = draft
    return Done(drafts, time.perf_counter() - began)
