"""The target's side of the drafter: connects, asks once a round, and never makes a request wait for long or fail.

A drafter that is gone, slow or wrong costs acceptance only. It may come back at any time: live sequences are opened and
fed again on the new stream when they next ask.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc.aio
from tandem.v1.drafter_pb2 import (
    DrafterDescription,
    DrafterRefusal,
    DrafterServiceDescribeRequest,
    DraftRequest,
    DraftResponse,
    Hello,
    Welcome,
)
from tandem.v1.drafter_pb2_grpc import DrafterServiceStub

if TYPE_CHECKING:
    from tandem.v1.drafter_pb2_grpc import DrafterServiceAsyncStub

    Call = grpc.aio.StreamStreamCall[DraftRequest, DraftResponse]

from services.errors import TandemError, Unavailable
from services.target.link.patience import Breaker, Deadline
from services.target.link.stream import Stream
from services.target.link.turn import Drafts
from services.target.link.welcome import usable
from services.target.sequence import Sequence as Generation
from services.target.taps.needs import Needs
from services.target.taps.retained import Retained
from services.target.taps.sharing import Sharing
from services.target.taps.taps import Taps
from services.wire.clients import before_retrying, drafter_channel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftAsk:
    """One sequence of a round: which drafter, and how many drafts at most."""

    sequence: Generation
    mode: str
    max_draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds to wait: for the first and for later drafts of a round, after `misses` unanswered turns in a row, before
    a stream whose turn stays unanswered counts as dead, for Welcome, and between attempts to connect."""

    first_s: float
    most_s: float
    misses: int
    rest_s: float
    hang_s: float = 10.0
    welcome_s: float = 10.0
    reconnect_s: float = 0.25


class DrafterLink:
    """`address` None: there is no drafter. `taps` is what may be fed, `sharing` how it reaches a drafter on this host;
    None: in messages. `dropped` counts, by reason, what was received but not applied, `skipped` asks that brought no
    draft; of `turns`, `unanswered` had no answer in time. The last `draft` asked for sequences `asked`, and was or
    was not `answered`. `up` is set while drafters are here."""

    def __init__(
        self,
        address: str | None,
        hello: Hello,
        patience: Patience,
        taps: Taps,
        sharing: Sharing | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.taps = taps
        self.up = asyncio.Event()
        self.dropped: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.turns = self.unanswered = 0
        self.asked: Collection[int] = ()
        self.answered = False
        self.refusals: Sequence[DrafterRefusal] = ()
        self._address, self._hello, self._patience, self._clock = address, hello, patience, clock
        self._deadline = Deadline(patience.first_s, patience.most_s)
        self._breaker = Breaker(clock, patience.misses, patience.rest_s)
        self._stream: Stream | None = None
        self._call: Call | None = None
        self._sharing = sharing
        self._known: Mapping[str, DrafterDescription] = {}

    @property
    def drafters(self) -> Mapping[str, DrafterDescription]:
        """Drafters by mode; empty while the drafter is away."""
        return self._stream.drafters if self._stream else {}

    @property
    def open_contexts(self) -> int:
        """Sequences that the drafter holds for us."""
        return len(self._stream.contexts) if self._stream else 0

    def retain(self, sequence: Generation) -> Retained | None:
        """Retain what drafters may need of a sequence that begins, but those it leaves out: those that are here or,
        while none is, that were here last. None when they need nothing."""
        request = sequence.request
        wanted = [
            each
            for mode, each in self._known.items()
            if request.speculation.may_use(mode)
            and mode not in sequence.left_out
            and not (each.HasField("context_length") and each.context_length <= len(request.prompt))
        ]
        needs = Needs.of(wanted)
        return self.taps.retain(needs) if needs else None

    def hindrances(self, sequence: Generation) -> Mapping[str, str]:
        """Why drafters that are here cannot draft for a sequence just now, by mode."""
        return self._stream.hindrances(sequence) if self._stream else {}

    async def draft(self, asks: Sequence[DraftAsk]) -> Drafts:
        """Drafts by sequence, for those that have any when the round's drafting time is up."""
        stream = self._stream
        self.asked, self.answered = (), False
        if stream is None or self._breaker.open or self._still_open(stream):
            self.skipped["away" if stream is None else "resting" if self._breaker.open else "busy"] += len(asks)
            return {}
        entries = [entry for ask in asks if (entry := stream.entry(ask.sequence, ask.mode, ask.max_draft_tokens))]
        self.skipped["no_context"] += len(asks) - len(entries)
        if not entries:
            return {}
        budget_s = self._deadline.seconds
        turn = stream.begin(entries, self._clock(), budget_s)
        self.turns += 1
        self.asked = {entry.sequence for entry in entries}
        await asyncio.wait([turn.answer], timeout=budget_s)
        if turn.answer.done():
            self._breaker.answered()
            drafts, self.answered = turn.answer.result(), stream is self._stream
            self.skipped["nothing_proposed" if stream is self._stream else "away"] += len(entries) - len(drafts)
            return drafts
        self.unanswered += 1
        self.skipped["unanswered"] += len(entries)
        self._breaker.unanswered()
        return {}

    def _still_open(self, stream: Stream) -> bool:
        """The last turn was not answered in time and still is not: ask nothing more, and give up on a dead stream."""
        if stream.turn is None:
            return False
        if self._call is not None and self._clock() - stream.turn.sent_at > self._patience.hang_s:
            self._call.cancel()
        return True

    def sync(self, sequence: Generation) -> None:
        """A sequence committed something: feed it if a turn could not carry it."""
        if self._stream is not None:
            self._stream.sync(sequence)

    def close(self, sequence: int) -> None:
        """A sequence ended: its contexts are freed now, not with the next round."""
        if self._stream is not None:
            self._stream.close(sequence)

    async def run(self) -> None:
        """Stay connected until cancelled; without a drafter, only wait for that: who ends early has failed."""
        address, said = self._address, ""
        if address is None:
            await asyncio.Event().wait()
            return
        while True:
            try:
                async with drafter_channel(address) as channel:
                    await self._converse(DrafterServiceStub(channel))
                why = "it ended the stream"
            except grpc.aio.AioRpcError as error:
                why = error.details() or error.code().name
            except (TandemError, TimeoutError) as error:
                why = str(error) or "it did not answer"
            if why != said:
                log.warning("drafter at %s is away (%s); decoding goes on without it", address, why)
            said = why
            await before_retrying(self._patience.reconnect_s)

    async def _converse(self, stub: "DrafterServiceAsyncStub") -> None:
        """One stream, from Hello to its end."""
        outgoing: asyncio.Queue[DraftRequest] = asyncio.Queue()
        described = await stub.Describe(DrafterServiceDescribeRequest(), timeout=self._patience.welcome_s)
        self._call = call = stub.Draft()
        writing = asyncio.create_task(_write(call, outgoing))
        try:
            # A ring takes its memory at once, so there is one for who needs it only.
            sharing = self._sharing if Needs.of(described.drafters) else None
            async with sharing.offer() if sharing else contextlib.nullcontext() as ring:
                hello = Hello(ring=ring)
                hello.MergeFrom(self._hello)
                outgoing.put_nowait(DraftRequest(hello=hello))
                welcome = usable(await self._welcome(call), self._hello)
            stream = Stream(welcome, outgoing, self._hello.vocab_size, self.dropped, self.taps)
            self._begin(stream, welcome)
            while isinstance(response := await call.read(), DraftResponse):
                if turn := stream.receive(response):
                    self._deadline.answered(self._clock() - turn.sent_at)
        except asyncio.CancelledError:
            # A call that we cancelled ends like this too; only our own task's cancellation goes further.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Unavailable("it does not answer") from None
        finally:
            writing.cancel()
            call.cancel()
            self._end()

    async def _welcome(self, call: "Call") -> Welcome:
        async with asyncio.timeout(self._patience.welcome_s):
            first = await call.read()
        if not isinstance(first, DraftResponse) or not first.HasField("welcome"):
            raise Unavailable("its first message is not Welcome")
        return first.welcome

    def _begin(self, stream: Stream, welcome: Welcome) -> None:
        self._stream, self._known, self.refusals = stream, stream.drafters, welcome.refusals
        self._breaker.answered()
        self.up.set()
        way = "shared memory" if welcome.ring_mapped else "messages"
        log.info("drafter at %s serves %s; taps in %s", self._address, ", ".join(stream.drafters) or "nothing", way)
        for refusal in welcome.refusals:
            log.warning("drafter %s was refused: %s", refusal.name, refusal.reason)

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.end()
        self._stream = self._call = None
        self.refusals = ()
        self.up.clear()


async def _write(call: "Call", outgoing: asyncio.Queue[DraftRequest]) -> None:
    """Send in order; a stream that ends is noticed by whoever reads it."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await call.write(await outgoing.get())
