"""The round loop: draft, verify, accept, cut, commit, emit. It exists once, for every mode, streamed or not.

Runs on the event loop; the model runs on its own thread, with one hand-off each way a round. Sequences join and leave
at round boundaries only.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial

from services.engine.sampling import Rules
from services.errors import Internal, TandemError, Unavailable, Unsupported
from services.target.counters import Counters, Spent
from services.target.cut import Cutter
from services.target.link.link import DrafterLink
from services.target.model import Model
from services.target.report import Report
from services.target.request import Request
from services.target.scheduler import Bounds, Scheduler
from services.target.sequence import Sequence
from services.target.sink import Sink, Update
from services.target.steering import Steering
from services.target.step import Progress, Work, step
from services.target.worker import Worker
from services.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class Rounds:
    """All running generations of one model. `totals` counts over all that ran, `spent` what their rounds took."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        link: DrafterLink,
        worker: Worker,
        bounds: Bounds,
        steering: Steering,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model, self._tokenizer, self._link, self._worker = model, tokenizer, link, worker
        self.scheduler = Scheduler(model, bounds)
        self.steering = steering
        self.totals = Counters()
        self.spent = Spent()
        self._clock = clock
        self._draft_s = 0.0  # of the round that runs
        self._numbers = itertools.count(1)
        self._work = asyncio.Event()

    async def generate(self, request: Request, *, again: bool = False) -> AsyncGenerator[Update, None]:
        """Run one sequence; `again` for one that follows another of the same request. Closing the iterator, or an
        error of its reader, ends it within one round."""
        sequence = self._submit(request, again=again)
        try:
            async for update in sequence.sink.updates():
                yield update
        finally:
            sequence.ended = True
            self._work.set()

    async def run(self) -> None:
        """Serve until cancelled; whatever still runs then fails with Unavailable."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._boundary():
                    await self._round()
        finally:
            for sequence in (*self.scheduler.waiting, *self.scheduler.running):
                self._fail(sequence, Unavailable("the target is stopping"))
            self._boundary()

    def _submit(self, request: Request, *, again: bool) -> Sequence:
        decision = self.steering.first(request)
        if request.speculation.strict and decision.reason is not None:
            raise Unsupported(
                f"speculation mode {request.speculation.mode!r} cannot run ({decision.reason}) and `strict` is set",
                field="speculation.mode",
            )
        sequence = Sequence(
            id=next(self._numbers),
            request=request,
            ids=list(request.prompt),
            rules=Rules(request.sampling, request.prompt, request.stop_ids),
            cutter=Cutter(request, self._tokenizer),
            sink=Sink(),
        )
        self.scheduler.submit(sequence, again=again)
        self._work.set()
        return sequence

    def _boundary(self) -> bool:
        """Between rounds: let the ended leave and the waiting join. False when nobody is left to run."""
        for sequence in self.scheduler.sweep():
            self._link.close(sequence.id)
            self.steering.forget(sequence)
            if sequence.taps is not None:
                self._link.taps.drop(sequence.taps)
        self.scheduler.admit()
        return bool(self.scheduler.running)

    async def _round(self) -> None:
        works = await self._plan()
        began = self._clock()
        try:
            outcome = await self._worker.run(partial(step, self._model, self._link.taps, works))
        except Exception as error:
            # A step that fails has moved nothing it could be trusted to continue from; only its sequences end.
            log.exception("a step over %d sequences failed", len(works))
            for work in works:
                self._fail(work.sequence, error if isinstance(error, TandemError) else Internal("the step failed"))
            return
        finally:
            self.spent.rounds += 1
            took_s = self._clock() - began
            self.spent.verify_s += took_s
        self.steering.record(outcome, self._draft_s, took_s)
        for progress in outcome:
            self._publish(progress)

    async def _plan(self) -> list[Work]:
        decoding = self.scheduler.decoding()
        for sequence in self.scheduler.running:
            if sequence.current is None:  # it begins
                self.steering.begin(sequence)
        self.steering.decide(self.scheduler.running)
        drafts = await self._draft(decoding)
        works = [
            Work(sequence, (sequence.ids[-1], *draft), wanted=1 + len(draft), mode=_mode(sequence))
            for sequence in decoding
            for draft in [drafts.get(sequence.id, ())]
        ]
        works += self.scheduler.prefills(sum(work.wanted for work in works))
        for work in works:
            if work.sequence.taps is not None:
                self._link.taps.reserve(work.sequence.taps, len(work.ids))
        return works

    async def _draft(self, decoding: list[Sequence]) -> Mapping[int, tuple[int, ...]]:
        for sequence in decoding:
            if sequence.current and (reason := sequence.current.reason):
                self.spent.skipped[reason] += 1
        self._draft_s = 0.0
        asks = self.steering.asks(decoding)
        if not asks:
            return {}
        began = self._clock()
        drafts = await self._link.draft(asks)
        self._draft_s = self._clock() - began
        self.spent.draft_s += self._draft_s
        verified = self.steering.cut(drafts)
        self.spent.skipped["cut"] += sum(not ids for ids in verified.values())
        return verified

    def _publish(self, progress: Progress) -> None:
        sequence = progress.sequence
        if progress.finish is None:
            self._link.sync(sequence)
        if not progress.kept:
            return
        self.totals.record(progress.mode, progress.drafted, [kept.origin for kept in progress.kept])
        assert sequence.resolved is not None, "decided before its first step"
        recorded = sequence.recorded or () if progress.finish else ()
        report = Report.snapshot(sequence.request, sequence.resolved, sequence.counters, recorded)
        sequence.sink.put(Update(progress.kept, report, progress.finish))
        sequence.ended |= progress.finish is not None

    def _fail(self, sequence: Sequence, error: TandemError) -> None:
        sequence.sink.fail(error)
        sequence.ended = True


def _mode(sequence: Sequence) -> str:
    return sequence.current.mode if sequence.current else "none"
