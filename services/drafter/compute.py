"""The compute thread's side of a stream: makes and frees contexts, absorbs feeds, drafts in batches.

One thread serves all streams, one job after another, so no context is ever touched by two jobs.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass

from services.drafter.contexts import FedSequence
from services.drafter.interface import Ask, Draft, Feed


@dataclass(frozen=True, slots=True)
class Work:
    """Absorb `feeds`, then draft at most so many tokens; none are wanted when only a feed is absorbed."""

    sequence: FedSequence
    feeds: Sequence[Feed]
    mode: str = ""
    max_draft_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """One draft for each piece of work, in order."""

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

    async def run(self, batch: Sequence[Work] = (), *, until: float = math.inf) -> Done:
        """Feeds are absorbed whenever it is; what begins later than `until`, in seconds of `time.monotonic`, drafts
        nothing any more. Shielded: a stream that ends must not take chores with it."""
        chores, self._chores = self._chores, []
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, _do, chores, batch, until))


def _do(chores: Sequence[Callable[[], None]], batch: Sequence[Work], until: float) -> Done:
    with ExitStack() as all_of_them:  # even if one fails: the others' memory must not stay behind
        for chore in reversed(chores):
            all_of_them.callback(chore)
    began = time.monotonic()
    asking: defaultdict[str, list[int]] = defaultdict(list)
    for index, work in enumerate(batch):
        work.sequence.absorb(work.feeds)
        if work.max_draft_tokens and began <= until:
            asking[work.mode].append(index)
    drafts = [Draft()] * len(batch)
    for mode, indices in asking.items():
        asks = [Ask(batch[index].sequence.contexts[mode], batch[index].max_draft_tokens) for index in indices]
        drafter = batch[indices[0]].sequence.drafters[mode]
        for index, draft in zip(indices, drafter.draft(asks), strict=True):
            drafts[index] = draft
    return Done(drafts, time.monotonic() - began)
