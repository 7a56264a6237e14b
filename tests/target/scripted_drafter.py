"""A real DrafterService whose answers follow a script: right, wrong, late, malformed, dead."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import torch
from google.protobuf.duration_pb2 import Duration
from tandem.v1 import drafter_pb2 as pb
from tandem.v1 import types_pb2
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer

from services.errors import Unavailable
from services.wire.codec import tensor_of
from services.wire.ring import Ring, mapped
from tests.target.scripted_model import HIDDEN, LAYERS, tap

NGRAM, MTP = types_pb2.SPECULATION_MODE_NGRAM, types_pb2.SPECULATION_MODE_MTP
DFLASH, DFLASH2 = types_pb2.SPECULATION_MODE_DFLASH, types_pb2.SPECULATION_MODE_DFLASH2
NEEDS = {NGRAM: (), MTP: (LAYERS,), DFLASH: (0, 3), DFLASH2: (1, 3)}
"""Taps of each mode; LAYERS is the final hidden state."""

KINDS = (
    "right", "wrong", "wrong_first", "nothing", "silent", "late", "doubled", "stale_frontier", "stale_epoch",
    "stale_anchor", "other_sequence", "huge_ids", "overlong", "behind", "unexpected", "die",
)  # fmt: skip
"""`right` drafts the true continuation; the stale ones draft it too, but answer a question that was not asked."""


@dataclass(slots=True)
class Known:
    """What the drafter was told of a sequence; `needs` are the taps that its feeds carry. It said that it has positions
    0 .. acknowledged - 1."""

    ids: list[int]
    epoch: int
    needs: Sequence[int]
    leases: bool = False
    acknowledged: int = 0


@dataclass
class ScriptedDrafter(DrafterServiceServicer):
    """`truth` maps a history to its true continuation; `script` gives the kind and length of each answer, then repeats
    `right`. `on_time` counts proposed tokens that were valid answers in time, `fed_taps` positions whose taps were
    right. `faults` is what the target should not have done, such as feeding other taps than the model's. `needs` says
    which taps each mode needs; `confidence` what is said of so many drafts; a ring is mapped when it lies in
    `tap_folder`."""

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
    fed_taps: int = 0
    modes: tuple[int, ...] = (NGRAM,)
    needs: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: NEEDS)
    context_length: int | None = None
    confidence: Callable[[int], Sequence[float]] | None = None
    tap_folder: Path | None = None
    rings: list[Ring | None] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    requests: list[pb.DraftRequest] = field(default_factory=list)

    async def Describe(self, request, context) -> pb.DrafterServiceDescribeResponse:
        return pb.DrafterServiceDescribeResponse(instance="scripted", drafters=self._drafters())

    async def Draft(self, requests: AsyncIterator[pb.DraftRequest], context) -> AsyncIterator[pb.DraftResponse]:
        known: dict[int, Known] = {}
        without: set[int] = set()
        ring: Ring | None = None
        with ExitStack() as stack:
            async for request in requests:
                self.requests.append(request)
                match request.WhichOneof("message"):
                    case "hello":
                        ring = stack.enter_context(mapped(request.hello, self.tap_folder))
                        self.rings.append(ring)
                        yield pb.DraftResponse(welcome=self._welcome(ring))
                    case "open":
                        opened = request.open
                        for response in self._released(opened.sequence, known.pop(opened.sequence, None)):
                            yield response
                        self.opened += opened.epoch == 1
                        if len(known) >= self.room:
                            yield pb.DraftResponse(behind=_no_room(opened))
                            without.add(opened.sequence)
                            continue
                        needs = sorted({layer for mode in opened.modes for layer in self.needs[mode]})
                        known[opened.sequence] = Known([opened.first_id], opened.epoch, needs)
                        self._must(len(known) <= self.max_contexts, "no more are opened than were offered")
                    case "feed" if request.feed.sequence in without:
                        self.passed_over += 1
                    case "feed":
                        feed = request.feed
                        self._feed(known, feed, ring)
                        yield _acknowledged(feed.sequence, known[feed.sequence])
                    case "close":
                        self.closed += 1
                        closed = request.close.sequence
                        without.discard(closed)
                        for response in self._released(closed, known.pop(closed, None)):
                            yield response
                    case "turn":
                        self.passed_over += sum(asked.sequence in without for asked in request.turn.sequences)
                        kept = [asked for asked in request.turn.sequences if asked.sequence not in without]
                        del request.turn.sequences[:]
                        request.turn.sequences.extend(kept)
                        async for response in self._answer(known, request.turn, ring):
                            yield response

    async def all_closed(self) -> None:
        """Wait for the Closes that are still on their way."""
        while self.closed < self.opened:  # noqa: ASYNC110 - a message that is lost fails the test by its timeout
            await asyncio.sleep(0)

    def _drafters(self) -> list[pb.DrafterDescription]:
        return [
            pb.DrafterDescription(
                mode=mode,
                name="scripted",
                max_draft_tokens=15,
                default_draft_tokens=7,
                context_length=self.context_length,
                tap_layers=[layer for layer in self.needs[mode] if layer < LAYERS],
                needs_final_hidden=LAYERS in self.needs[mode],
            )
            for mode in self.modes
        ]

    def _welcome(self, ring: Ring | None) -> pb.Welcome:
        return pb.Welcome(
            protocol_version=1,
            instance="scripted",
            drafters=self._drafters(),
            max_contexts=self.max_contexts,
            ring_mapped=ring is not None,
        )

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.faults.append(what)
        assert holds, what

    def _released(self, sequence: int, over: Known | None) -> Iterator[pb.DraftResponse]:
        if over is not None and over.leases:
            yield pb.DraftResponse(released=pb.Released(sequence=sequence, epoch=over.epoch))

    def _feed(self, known: dict[int, Known], feed: pb.Feed, ring: Ring | None) -> None:
        of = known[feed.sequence]
        self._must(feed.start == len(of.ids) - 1, "feeds have no hole and no overlap")
        of.ids.extend(feed.ids)
        if not of.needs:
            self._must(not feed.HasField("taps"), "no taps are sent that nobody needs")
            return
        taps = tensor_of(feed.taps, ring=ring)
        of.leases |= taps.lease is not None
        self._must(taps.dtype == "fp32", "taps are of the model's dtype")
        self._must(taps.shape == (len(feed.ids), len(of.needs), HIDDEN), "there is a row for each tap of each position")
        given_NKH = torch.frombuffer(bytearray(taps.data), dtype=torch.float32).view(taps.shape)
        for position, given_KH in enumerate(given_NKH, feed.start):
            history = of.ids[: position + 1]
            right = torch.stack([tap(history, layer) for layer in of.needs])
            self._must(torch.equal(given_KH, right), f"the taps of position {position} are the model's")
        self._must(taps.lease is None or taps.lease.holds, "a slot is not overwritten before it is acknowledged")
        self.fed_taps += len(feed.ids)

    async def _answer(
        self, known: dict[int, Known], turn: pb.Turn, ring: Ring | None
    ) -> AsyncIterator[pb.DraftResponse]:
        self.turns += 1
        kind, length = next(self.script, ("right", 7))
        proposals = []
        for asked in turn.sequences:
            if asked.HasField("feed"):
                self._feed(known, asked.feed, ring)
            ids = known[asked.sequence].ids
            self._must(len(ids) == asked.frontier + 1, "the context reaches the frontier")
            self._must(ids[-1] == asked.anchor, "the anchor is the last id that was fed")
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
                    of, id = known[asked.sequence], asked.sequence
                    yield pb.DraftResponse(behind=pb.Behind(sequence=id, epoch=asked.epoch, fed=0))
                    if of.acknowledged:
                        del of.ids[1:]  # the context is lost
                        of.acknowledged = 0
                yield pb.DraftResponse(proposals=pb.Proposals(turn=turn.turn))
                for asked in turn.sequences:
                    yield _acknowledged(asked.sequence, known[asked.sequence])
            case "doubled":
                yield answer
                yield answer
            case "unexpected":
                yield pb.DraftResponse(welcome=self._welcome(ring))
                yield pb.DraftResponse(ack=pb.Ack(sequence=999, epoch=1, fed=10**6))
                yield answer
            case _:
                yield answer
        if kind not in ("behind", "silent", "die"):
            for proposal in proposals:
                of = known.get(proposal.sequence)
                if of is not None and of.epoch == proposal.epoch:
                    of.acknowledged = max(of.acknowledged, proposal.frontier)

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
        if self.confidence is not None:
            proposal.confidences.extend(self.confidence(len(proposal.ids)))
        if kind in ("right", "wrong", "wrong_first", "doubled", "unexpected", "huge_ids", "overlong"):
            usable = takewhile(lambda id: id < 32, proposal.ids[: asked.max_draft_tokens])
            self.on_time += len(list(usable))
        return proposal


def _no_room(opened: pb.Open) -> pb.Behind:
    return pb.Behind(sequence=opened.sequence, epoch=opened.epoch, no_room=True)


def _acknowledged(sequence: int, known: Known) -> pb.DraftResponse:
    known.acknowledged = len(known.ids) - 1
    return pb.DraftResponse(ack=pb.Ack(sequence=sequence, epoch=known.epoch, fed=known.acknowledged))
