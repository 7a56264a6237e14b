"""What the drafter knows of each sequence on one stream: who was opened, how far each was fed, how far it confirmed.

      0 ......... confirmed ......... sent ......... frontier | anchor
      acknowledged        | on its way    | to be fed

Only committed positions are fed, so nothing is ever taken back. The stream is ordered, hence a drafter that says it is
behind what it had confirmed has dropped the context, and is fed from there again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.v1.drafter_pb2 import Close, DraftRequest, Feed, Open
from tandem.v1.types_pb2 import LogitBias, Sampling

from services.target.sequence import Sequence
from services.wire.codec import MODES

FEED_POSITIONS = 4096
"""Positions in one feed: far below the message limit, and short enough for turns to pass between."""


@dataclass(slots=True)
class Context:
    """Positions 0 .. sent - 1 were fed, 0 .. confirmed - 1 acknowledged. A target opens a sequence once a stream."""

    epoch: int = 1
    sent: int = 0
    confirmed: int = 0


class Contexts:
    """The contexts of one stream; they die with it."""

    def __init__(self) -> None:
        self._open: dict[int, Context] = {}

    def __getitem__(self, sequence: int) -> Context:
        return self._open[sequence]

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._open

    def __len__(self) -> int:
        return len(self._open)

    def open(self, sequence: Sequence, modes: tuple[str, ...]) -> Iterator[DraftRequest]:
        """Open a sequence that is not open."""
        context = self._open[sequence.id] = Context()
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

    def feeds(self, sequence: Sequence) -> Iterator[DraftRequest]:
        """Bring the context up to the frontier."""
        while feed := self.feed(sequence):
            yield DraftRequest(feed=feed)

    def feed(self, sequence: Sequence) -> Feed | None:
        """The next positions to feed, counted as sent; None when there are none."""
        context = self._open[sequence.id]
        start, end = context.sent, min(sequence.frontier, context.sent + FEED_POSITIONS)
        if start >= end:
            return None
        context.sent = end
        return Feed(sequence=sequence.id, epoch=context.epoch, start=start, ids=sequence.ids[start + 1 : end + 1])

    def gap(self, sequence: Sequence) -> int:
        """Positions not yet sent."""
        return sequence.frontier - self._open[sequence.id].sent

    def confirm(self, sequence: int, epoch: int, fed: int) -> None:
        if (context := self._open.get(sequence)) and context.epoch == epoch:
            context.confirmed = max(context.confirmed, min(fed, context.sent))

    def behind(self, sequence: int, epoch: int, fed: int) -> None:
        """Feed again from `fed` if the drafter lost what it had confirmed; else its feeds are still on their way."""
        if (context := self._open.get(sequence)) and context.epoch == epoch and fed < context.confirmed:
            context.sent = context.confirmed = fed

    def close(self, sequence: int) -> Iterator[DraftRequest]:
        if self._open.pop(sequence, None):
            yield DraftRequest(close=Close(sequence=sequence))


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
