"""What the drafter knows of each sequence on one stream: who was opened, how far each was fed, how far it confirmed.

      0 ......... confirmed ......... sent ......... frontier | anchor
      acknowledged        | on its way    | to be fed

Only committed positions are fed, so nothing is ever taken back. The stream is ordered, hence a drafter that says it is
behind what it had confirmed has dropped the context, and is fed from there again.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tandem.v1.drafter_pb2 import Close, DraftRequest, Feed, Open
from tandem.v1.types_pb2 import LogitBias, Sampling

from services.target.link.tapped import Tapped
from services.target.sequence import Sequence
from services.target.taps.needs import Needs
from services.target.taps.retained import Page
from services.target.taps.taps import Taps
from services.wire.codec import MODES

FEED_POSITIONS = 4096
"""Positions in one feed: far below the message limit, and short enough for turns to pass between."""

INLINE_BYTES = 16 << 20
"""Taps in messages that are not acknowledged yet; a drafter that cannot follow must not fill our memory."""


@dataclass(frozen=True, slots=True)
class Flight:
    """Taps on their way, up to position `end`: the page that the drafter reads, or so many bytes in a message."""

    end: int
    page: Page | None
    inline_bytes: int


@dataclass(slots=True)
class Context:
    """Positions 0 .. sent - 1 were fed, 0 .. confirmed - 1 acknowledged. `behind`: the drafter said that it was."""

    epoch: int
    modes: tuple[str, ...]
    tapped: Tapped | None
    sent: int = 0
    confirmed: int = 0
    behind: bool = False
    flights: deque[Flight] = field(default_factory=deque)


class Contexts:
    """The contexts of one stream; they die with it. `ring`: the drafter maps what is retained."""

    def __init__(self, taps: Taps, *, ring: bool) -> None:
        self._taps, self._ring = taps, ring
        self._open: dict[int, Context] = {}
        self._over: dict[tuple[int, int], deque[Flight]] = {}  # of epochs that are over, until they are released
        self._inline_bytes = 0

    def __getitem__(self, sequence: int) -> Context:
        return self._open[sequence]

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._open

    def __len__(self) -> int:
        return len(self._open)

    def open(self, sequence: Sequence, modes: tuple[str, ...], needs: Needs) -> Iterator[DraftRequest]:
        """Open a sequence, or start it over. `needs`: what `modes` need of its taps."""
        before = self._open.get(sequence.id)
        if before is not None:
            self._leave(sequence.id, before)
        tapped = Tapped(self._taps, sequence.taps, needs, self._ring) if needs and sequence.taps else None
        context = Context(before.epoch + 1 if before else 1, modes, tapped)
        self._open[sequence.id] = context
        request = sequence.request
        yield DraftRequest(
            open=Open(
                sequence=sequence.id,
                epoch=context.epoch,
                first_id=sequence.ids[0],
                modes=[MODES.value(mode) for mode in modes],
                sampling=_sampling(sequence),
                choice=request.sampling.choice,
                max_positions=len(request.prompt) + request.max_new,
            )
        )

    def starved(self, sequence: int) -> bool:
        """The context cannot be fed any further: what it needs is not retained any more."""
        tapped = self._open[sequence].tapped
        return tapped is not None and tapped.retained.ended

    def catching_up(self, sequence: int) -> bool:
        """The drafter said that it was behind, and has not acknowledged yet what it was sent."""
        context = self._open.get(sequence)
        return context is not None and context.behind and context.confirmed < context.sent

    def feeds(self, sequence: Sequence) -> Iterator[Feed]:
        """Bring the context up to the frontier, as far as may be sent now."""
        while feed := self.feed(sequence):
            yield feed

    def feed(self, sequence: Sequence) -> Feed | None:
        """The next positions to feed, counted as sent; None when there are none, or too many are on their way."""
        context = self._open[sequence.id]
        start, end = context.sent, min(sequence.frontier, context.sent + FEED_POSITIONS)
        tapped = context.tapped
        if tapped is not None:
            end = min(end, tapped.retained.border(start))
        if start >= end or (tapped is not None and tapped.inline and self._inline_bytes >= INLINE_BYTES):
            return None
        context.sent = end
        feed = Feed(sequence=sequence.id, epoch=context.epoch, start=start, ids=sequence.ids[start + 1 : end + 1])
        if tapped is not None:
            taps, page = tapped.tensor(start, end)
            feed.taps.CopyFrom(taps)
            self._depart(context, Flight(end, page, len(taps.inline)))
        return feed

    def gap(self, sequence: Sequence) -> int:
        """Positions not yet sent."""
        return sequence.frontier - self._open[sequence.id].sent

    def confirm(self, sequence: int, epoch: int, fed: int) -> None:
        if (context := self._open.get(sequence)) and context.epoch == epoch:
            self._confirmed(context, max(context.confirmed, min(fed, context.sent)))
            context.behind &= context.confirmed < context.sent
            while context.flights and context.flights[0].end <= context.confirmed:
                self._land(context.flights.popleft())

    def behind(self, sequence: int, epoch: int, fed: int) -> None:
        """Feed again from `fed` if the drafter lost what it had confirmed; else its feeds are still on their way."""
        if (context := self._open.get(sequence)) and context.epoch == epoch:
            context.behind = True
            if fed < context.confirmed:
                context.sent = fed
                self._confirmed(context, fed)
                if context.tapped is not None and fed < context.tapped.retained.base:
                    self._taps.drop(context.tapped.retained)

    def released(self, sequence: int, epoch: int) -> None:
        """The drafter reads nothing any more of an epoch that is over."""
        for flight in self._over.pop((sequence, epoch), ()):
            self._land(flight)

    def close(self, sequence: int) -> Iterator[DraftRequest]:
        if context := self._open.pop(sequence, None):
            self._leave(sequence, context)
            yield DraftRequest(close=Close(sequence=sequence))

    def refused(self, sequence: int) -> Iterator[DraftRequest]:
        """The drafter has no room for it, and reads nothing of what it was fed."""
        for flight in self._open.pop(sequence).flights:
            self._land(flight)
        yield DraftRequest(close=Close(sequence=sequence))

    def end(self) -> None:
        """The stream is over, and with it whatever was on its way."""
        for flights in (*self._over.values(), *(context.flights for context in self._open.values())):
            for flight in flights:
                self._land(flight)
        self._taps.stream_ended()

    def _confirmed(self, context: Context, fed: int) -> None:
        context.confirmed = fed
        if context.tapped is not None:
            context.tapped.retained.confirmed = fed

    def _depart(self, context: Context, flight: Flight) -> None:
        context.flights.append(flight)
        self._inline_bytes += flight.inline_bytes
        if flight.page is not None:
            flight.page.pins += 1

    def _land(self, flight: Flight) -> None:
        self._inline_bytes -= flight.inline_bytes
        if flight.page is not None:
            self._taps.unpin(flight.page)

    def _leave(self, sequence: int, context: Context) -> None:
        """An epoch is over. The drafter may be reading its feeds still; messages are nobody's but theirs."""
        reading = deque(flight for flight in context.flights if flight.page is not None)
        for flight in context.flights:
            if flight.page is None:
                self._land(flight)
        if reading:
            self._over[sequence, context.epoch] = reading


def _sampling(sequence: Sequence) -> Sampling:
    params = sequence.request.sampling
    return Sampling(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=[LogitBias(id=id, bias=bias) for id, bias in params.logit_bias.items()],
        banned_ids=sorted(params.banned),
        min_tokens=params.min_tokens,
        seed=params.seed,
    )
