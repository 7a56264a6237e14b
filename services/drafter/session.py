"""One stream, from Welcome to its end.

Reading never waits for computing: feeds pile up at their sequences, and the compute thread is given one job at a time,
the oldest turn or else the next piece of a waiting feed. So a turn waits for one piece at most, however long a prompt
is. Whatever is malformed ends the stream; whatever is merely late (an epoch that is over, positions known already) is
passed over.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

from services.drafter.compute import Compute, Done, Work
from services.drafter.contexts import Capacity, FedSequence, FedSequences
from services.drafter.interface import AnyDrafter, Feed
from services.drafter.messages import (
    Ack,
    Behind,
    Close,
    Open,
    Proposal,
    Proposals,
    Released,
    Request,
    Response,
    SequenceFeed,
    Turn,
    TurnSequence,
)
from services.errors import InvalidRequest, Unavailable

PIECE_POSITIONS = 512
"""Positions of a waiting feed that are absorbed in one job."""

TURN_POSITIONS = 64
"""Positions of one sequence that a turn absorbs itself: its own feed, and a little that waited."""

OPEN_TURNS = 64
"""Turns that may wait; the stream is not read further until one is answered."""

Entry = tuple[FedSequence, TurnSequence]


class Session:
    def __init__(self, drafters: Mapping[str, AnyDrafter], capacity: Capacity, thread: Executor) -> None:
        self._sequences = FedSequences(drafters, capacity)
        self._compute = Compute(thread)
        self._turns: deque[tuple[int, float, list[Entry]]] = deque()  # each with the end of its budget
        self._turn_room = asyncio.Semaphore(OPEN_TURNS)
        self._feeding: dict[int, FedSequence] = {}  # in the order of their next piece
        self._notices: dict[int, Ack | Behind] = {}  # the latest of each sequence, so that they take bounded memory
        self._released: deque[Released] = deque()
        self._wake = asyncio.Event()
        self._draining = False

    def drain(self) -> None:
        """Read no further, answer the turns that were received, then end as UNAVAILABLE."""
        self._draining = True
        self._wake.set()

    async def run(self, requests: AsyncIterator[Request]) -> AsyncGenerator[Response, None]:
        """Answer `requests` until they end and every turn is answered, or until one is malformed."""
        reading = asyncio.create_task(self._read(requests))
        reading.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                self._wake.clear()
                if self._draining:
                    reading.cancel()
                elif reading.done():
                    reading.result()
                notices, self._notices = self._notices, {}
                for notice in notices.values():
                    yield notice
                while self._released:
                    yield self._released.popleft()
                if self._turns:
                    number, until, entries = self._turns.popleft()
                    self._turn_room.release()
                    for notice in self._behind(entries):
                        yield notice
                    yield await self._propose(number, until, entries)
                elif self._draining:
                    raise Unavailable("the drafter is shutting down")
                elif reading.done():
                    return
                elif self._feeding:
                    if ack := await self._absorb_piece():
                        yield ack
                elif not self._compute.idle:
                    await self._compute.run()
                else:
                    await self._wake.wait()
        finally:
            reading.cancel()
            for sequence in self._sequences.close_all():
                self._compute.later(sequence.free)
            await self._compute.run()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # seen; what ended the stream has been raised already

    # What is read, in the order of the stream.

    async def _read(self, requests: AsyncIterator[Request]) -> None:
        async for request in requests:
            if self._draining:
                return
            match request:
                case Turn():
                    until, entries = time.monotonic() + request.budget_s, self._entries(request)
                    await self._turn_room.acquire()
                    self._turns.append((request.number, until, entries))
                case SequenceFeed():
                    self._feed(request)
                case Open():
                    self._open(request)
                case Close():
                    self._close(request.sequence)
            self._wake.set()

    def _open(self, request: Open) -> None:
        self._sequences.check(request)
        self._close(request.sequence)
        if sequence := self._sequences.open(request):
            self._compute.later(sequence.make)
        else:
            self._notices[request.sequence] = Behind(request.sequence, request.epoch, 0, no_room=True)

    def _close(self, id: int) -> None:
        if sequence := self._sequences.close(id):
            self._compute.later(partial(self._release, sequence) if sequence.leases else sequence.free)
        self._feeding.pop(id, None)
        self._notices.pop(id, None)

    def _release(self, sequence: FedSequence) -> None:
        """On the compute thread: whatever read the sequence's feeds has been done before."""
        sequence.free()
        self._released.append(Released(sequence.id, sequence.epoch))

    def _feed(self, request: SequenceFeed) -> None:
        sequence = self._sequences.find(request.sequence, request.epoch, field="feed.sequence")
        if sequence is None:
            return
        if not sequence.offer(request.feed, field="feed"):
            self._notices[sequence.id] = Behind(sequence.id, sequence.epoch, sequence.fed)
        elif sequence.fed < sequence.end:
            self._feeding[sequence.id] = sequence
        else:
            self._notices[sequence.id] = Ack(sequence.id, sequence.epoch, sequence.fed)

    def _entries(self, turn: Turn) -> list[Entry]:
        if len({request.sequence for request in turn.sequences}) < len(turn.sequences):
            raise InvalidRequest("a sequence occurs twice", field="turn.sequences")
        entries = []
        for index, request in enumerate(turn.sequences):
            field = f"turn.sequences[{index}]"
            sequence = self._sequences.find(request.sequence, request.epoch, field=f"{field}.sequence")
            if sequence is not None:
                self._check(sequence, request, field)
                entries.append((sequence, request))
        return entries

    def _check(self, sequence: FedSequence, request: TurnSequence, field: str) -> None:
        """Take the entry's feed, and hold the entry against what the sequence knows then."""
        if request.mode not in sequence.drafters:
            raise InvalidRequest(f"the sequence was not opened for {request.mode}", field=f"{field}.mode")
        if request.feed is not None:
            sequence.offer(request.feed, field=f"{field}.feed")
        if sequence.fed < sequence.end:
            self._feeding[sequence.id] = sequence
        if request.frontier < sequence.end:
            raise InvalidRequest(f"positions up to {sequence.end} were fed already", field=f"{field}.frontier")
        if request.frontier == sequence.end and request.anchor != sequence.last_id:
            raise InvalidRequest("another id was fed for the anchor's position", field=f"{field}.anchor")

    # What is computed, one job at a time.

    def _behind(self, entries: Sequence[Entry]) -> Iterator[Behind]:
        for sequence, request in entries:
            if sequence.is_open and not _near(sequence, request):
                yield Behind(sequence.id, sequence.epoch, sequence.fed)

    async def _propose(self, number: int, until: float, entries: Sequence[Entry]) -> Proposals:
        """Draft for the entries that reach their frontier within this turn; those with nothing to propose are listed
        too, since their feed was absorbed. After `until` nobody waits for drafts, and so they are not computed."""
        reached = [entry for entry in entries if entry[0].is_open and _near(*entry)]
        works = [self._work(sequence, request) for sequence, request in reached]
        done = await self._run(works, until=until)
        proposals = [
            Proposal(sequence.id, sequence.epoch, request.frontier, request.anchor, draft)
            for (sequence, request), draft in zip(reached, done.drafts, strict=True)
            if sequence.is_open
        ]
        return Proposals(turn=number, proposals=proposals, elapsed_s=done.elapsed_s)

    def _work(self, sequence: FedSequence, request: TurnSequence) -> Work:
        limits = sequence.drafters[request.mode].description
        fits = limits.context_length is None or request.frontier < limits.context_length
        count = min(request.max_draft_tokens, limits.max_draft_tokens) if fits else 0
        return Work(sequence, self._take(sequence, request.frontier), request.mode, count)

    async def _absorb_piece(self) -> Ack | None:
        sequence = next(iter(self._feeding.values()))
        await self._run([Work(sequence, self._take(sequence, sequence.fed + PIECE_POSITIONS))])
        return Ack(sequence.id, sequence.epoch, sequence.fed) if sequence.is_open else None

    async def _run(self, works: Sequence[Work], *, until: float = math.inf) -> Done:
        """What was read from the ring counts only if it was still there after the job."""
        done = await self._compute.run(works, until=until)
        for work in works:
            for feed in work.feeds:
                if feed.taps is not None and feed.taps.lease is not None and not feed.taps.lease.holds:
                    raise InvalidRequest(
                        f"taps of sequence {work.sequence.id} were overwritten before they were acknowledged",
                        field="feed.taps.ring",
                    )
        return done

    def _take(self, sequence: FedSequence, end: int) -> Sequence[Feed]:
        """Feeds to absorb now; what is left of them goes behind the pieces of other sequences."""
        feeds = sequence.take(end)
        self._feeding.pop(sequence.id, None)
        if sequence.fed < sequence.end:
            self._feeding[sequence.id] = sequence
        return feeds


def _near(sequence: FedSequence, request: TurnSequence) -> bool:
    return request.frontier <= min(sequence.end, sequence.fed + TURN_POSITIONS)
