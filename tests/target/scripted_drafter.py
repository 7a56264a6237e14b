"""A real DrafterService whose answers follow a script: right, wrong, late, malformed, dead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from google.protobuf.duration_pb2 import Duration
from tandem.v1 import drafter_pb2 as pb
from tandem.v1 import types_pb2
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer

from services.errors import Unavailable

KINDS = (
    "right", "wrong", "wrong_first", "nothing", "silent", "late", "doubled", "stale_frontier", "stale_epoch",
    "stale_anchor", "other_sequence", "huge_ids", "overlong", "behind", "unexpected", "die",
)  # fmt: skip
"""`right` drafts the true continuation; the stale ones draft it too, but answer a question that was not asked."""


@dataclass(slots=True)
class Known:
    """What the drafter was told of a sequence."""

    ids: list[int]
    epoch: int


@dataclass
class ScriptedDrafter(DrafterServiceServicer):
    """`truth` maps a history to its true continuation; `script` gives the kind and length of each answer, then repeats
    `right`. `on_time` counts proposed tokens that were valid answers in time."""

    truth: Callable[[Sequence[int]], Sequence[int]]
    script: Iterator[tuple[str, int]]
    late: asyncio.Event = field(default_factory=asyncio.Event)
    turns: int = 0
    opened: int = 0
    closed: int = 0
    on_time: int = 0
    passed_over: int = 0
    max_contexts: int = 100
    room: int = 100
    """Contexts that other targets leave free."""
    modes: tuple[int, ...] = (types_pb2.SPECULATION_MODE_NGRAM,)
    requests: list[pb.DraftRequest] = field(default_factory=list)

    async def Draft(self, requests: AsyncIterator[pb.DraftRequest], context) -> AsyncIterator[pb.DraftResponse]:
        known: dict[int, Known] = {}
        without: set[int] = set()
        async for request in requests:
            self.requests.append(request)
            match request.WhichOneof("message"):
                case "hello":
                    yield pb.DraftResponse(welcome=self._welcome())
                case "open":
                    self.opened += 1
                    if len(known) >= self.room:
                        yield pb.DraftResponse(behind=pb.Behind(sequence=request.open.sequence, epoch=1, no_room=True))
                        without.add(request.open.sequence)
                        continue
                    known[request.open.sequence] = Known([request.open.first_id], request.open.epoch)
                    assert len(known) <= self.max_contexts, "no more are opened than were offered"
                case "feed" if request.feed.sequence in without:
                    self.passed_over += 1
                case "feed":
                    self._feed(known, request.feed)
                case "close":
                    self.closed += 1
                    known.pop(request.close.sequence, None)
                    without.discard(request.close.sequence)
                case "turn":
                    self.passed_over += sum(asked.sequence in without for asked in request.turn.sequences)
                    kept = [asked for asked in request.turn.sequences if asked.sequence not in without]
                    del request.turn.sequences[:]
                    request.turn.sequences.extend(kept)
                    async for response in self._answer(known, request.turn):
                        yield response

    async def all_closed(self) -> None:
        """Wait for the Closes that are still on their way."""
        while self.closed < self.opened:  # noqa: ASYNC110 - a message that is lost fails the test by its timeout
            await asyncio.sleep(0)

    def _welcome(self) -> pb.Welcome:
        drafters = [
            pb.DrafterDescription(mode=mode, name="scripted", max_draft_tokens=15, default_draft_tokens=7)
            for mode in self.modes
        ]
        return pb.Welcome(protocol_version=1, instance="scripted", drafters=drafters, max_contexts=self.max_contexts)

    def _feed(self, known: dict[int, Known], feed: pb.Feed) -> None:
        ids = known[feed.sequence].ids
        assert feed.start == len(ids) - 1, "feeds have no hole and no overlap"
        ids.extend(feed.ids)

    async def _answer(self, known: dict[int, Known], turn: pb.Turn) -> AsyncIterator[pb.DraftResponse]:
        self.turns += 1
        kind, length = next(self.script, ("right", 7))
        proposals = []
        for asked in turn.sequences:
            if asked.HasField("feed"):
                self._feed(known, asked.feed)
            ids = known[asked.sequence].ids
            assert len(ids) == asked.frontier + 1, "the context reaches the frontier"
            assert ids[-1] == asked.anchor
            proposals.append(self._proposal(kind, length, asked, ids))
        answer = pb.DraftResponse(proposals=pb.Proposals(turn=turn.turn, proposals=proposals, elapsed=Duration()))
        match kind:
            case "die":
                raise Unavailable("scripted death")
            case "silent":
                return
            case "late":
                self.late.clear()
                await self.late.wait()
                yield answer
            case "behind":
                for asked in turn.sequences:
                    yield pb.DraftResponse(behind=pb.Behind(sequence=asked.sequence, epoch=asked.epoch, fed=0))
                yield pb.DraftResponse(proposals=pb.Proposals(turn=turn.turn))
            case "doubled":
                yield answer
                yield answer
            case "unexpected":
                yield pb.DraftResponse(welcome=self._welcome())
                yield pb.DraftResponse(ack=pb.Ack(sequence=999, epoch=1, fed=10**6))
                yield answer
            case _:
                yield answer

    def _proposal(self, kind: str, length: int, asked: pb.TurnSequence, ids: Sequence[int]) -> pb.Proposal:
        draft = list(self.truth(ids))[: min(length, asked.max_draft_tokens)]
        proposal = pb.Proposal(
            sequence=asked.sequence, epoch=asked.epoch, frontier=asked.frontier, anchor=asked.anchor, ids=draft
        )
        match kind:
            case "wrong" if draft:
                proposal.ids[-1] = (draft[-1] + 1) % 32
            case "wrong_first" if draft:
                proposal.ids[0] = (draft[0] + 1) % 32
            case "nothing":
                del proposal.ids[:]
            case "stale_frontier":
                proposal.frontier -= 1
            case "stale_epoch":
                proposal.epoch += 1
            case "stale_anchor":
                proposal.anchor = (asked.anchor + 1) % 32
            case "other_sequence":
                proposal.sequence += 1000
            case "huge_ids" if draft:
                proposal.ids[len(draft) // 2] = 2**32 - 1
            case "overlong":
                proposal.ids.extend([1] * 40)
        if kind in ("right", "wrong", "wrong_first", "doubled", "unexpected", "huge_ids", "overlong"):
            usable = takewhile(lambda id: id < 32, proposal.ids[: asked.max_draft_tokens])
            self.on_time += len(list(usable))
        return proposal
