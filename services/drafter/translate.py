"""Messages of the stream into plain values and back. What a message alone shows to be wrong is refused here."""

import math
from collections.abc import Sequence

from tandem.v1 import drafter_pb2 as pb
from tandem.v1.types_pb2 import SpeculationMode

from services.drafter.interface import Description, Feed, Opening
from services.drafter.messages import (
    Ack,
    Behind,
    Close,
    Hello,
    Open,
    Proposal,
    Proposals,
    Released,
    Request,
    Response,
    SequenceFeed,
    Turn,
    TurnSequence,
    Welcome,
)
from services.errors import InvalidRequest, Unsupported
from services.wire.codec import DATA_TYPES, DRAFT_PROTOCOL_VERSION, MODES, tensor_of
from services.wire.ring import Ring


def hello_of(request: pb.DraftRequest | None) -> Hello:
    """The first message of a stream; None when there was none."""
    if request is None or request.WhichOneof("message") != "hello":
        raise InvalidRequest("the first message must be Hello", field="hello")
    hello = request.hello
    if hello.protocol_version != DRAFT_PROTOCOL_VERSION:
        raise Unsupported(
            f"protocol version {hello.protocol_version}; this drafter speaks {DRAFT_PROTOCOL_VERSION}",
            field="hello.protocol_version",
        )
    if not hello.vocab_size:
        raise InvalidRequest("a target has a vocabulary", field="hello.vocab_size")
    return Hello(
        vocab_size=hello.vocab_size,
        hidden_size=hello.hidden_size,
        weights_fingerprint=hello.weights_fingerprint,
        layers=hello.layers,
        dtype=DATA_TYPES.name(hello.dtype, field="hello.dtype"),
        tokenizer_hash=hello.tokenizer_hash,
    )


def request_of(request: pb.DraftRequest, hello: Hello, ring: Ring | None = None) -> Request:
    """Any later message. Taps may be in `ring`."""
    match request.WhichOneof("message"):
        case "turn":
            turn = request.turn
            entries = [
                _turn_sequence(entry, hello, ring, f"turn.sequences[{index}]")
                for index, entry in enumerate(turn.sequences)
            ]
            return Turn(turn.turn, entries, _budget_s(turn))
        case "feed":
            feed = request.feed
            return SequenceFeed(feed.sequence, feed.epoch, _feed(feed, hello, ring, "feed"))
        case "open":
            return _open(request.open, hello)
        case "close":
            return Close(request.close.sequence)
        case "hello":
            raise InvalidRequest("Hello comes once, first", field="hello")
        case _:
            raise InvalidRequest("an empty message, or one that this version does not know", field="message")


def _open(request: pb.Open, hello: Hello) -> Open:
    _in_vocabulary([request.first_id], hello, "open.first_id")
    sampling = request.sampling
    opening = Opening(
        first_id=request.first_id,
        max_positions=request.max_positions,
        temperature=sampling.temperature if sampling.HasField("temperature") else 1.0,
        top_k=sampling.top_k,
        top_p=sampling.top_p if sampling.HasField("top_p") else 1.0,
        min_p=sampling.min_p,
        seed=sampling.seed if sampling.HasField("seed") else None,
        choice=request.choice,
    )
    modes = tuple(_mode(mode, "open.modes") for mode in request.modes)
    return Open(sequence=request.sequence, epoch=request.epoch, modes=modes, opening=opening)


def _budget_s(turn: pb.Turn) -> float:
    if not turn.HasField("budget"):
        return math.inf
    seconds = turn.budget.ToNanoseconds() / 1e9
    if seconds < 0:
        raise InvalidRequest(f"{seconds} s; it must not be negative", field="turn.budget")
    return seconds


def _turn_sequence(entry: pb.TurnSequence, hello: Hello, ring: Ring | None, field: str) -> TurnSequence:
    feed = entry.feed if entry.HasField("feed") else None
    if feed is not None and (feed.sequence, feed.epoch) != (entry.sequence, entry.epoch):
        raise InvalidRequest("the feed is of another sequence or epoch", field=f"{field}.feed")
    return TurnSequence(
        sequence=entry.sequence,
        epoch=entry.epoch,
        frontier=entry.frontier,
        anchor=entry.anchor,
        mode=_mode(entry.mode, f"{field}.mode"),
        max_draft_tokens=entry.max_draft_tokens,
        feed=None if feed is None else _feed(feed, hello, ring, f"{field}.feed"),
    )


def _feed(feed: pb.Feed, hello: Hello, ring: Ring | None, field: str) -> Feed:
    ids = list(feed.ids)
    _in_vocabulary(ids, hello, f"{field}.ids")
    if not feed.HasField("taps"):
        return Feed(feed.start, ids)
    taps = tensor_of(feed.taps, ring=ring, field=f"{field}.taps")
    if taps.dtype != hello.dtype:
        raise InvalidRequest(
            f"{taps.dtype}; Hello said {hello.dtype or 'nothing of a dtype'}", field=f"{field}.taps.dtype"
        )
    if len(taps.shape) != 3 or taps.shape[0] != len(ids) or taps.shape[2] != hello.hidden_size:
        raise InvalidRequest(
            f"shape {list(taps.shape)} is not [{len(ids)}, taps, {hello.hidden_size}]", field=f"{field}.taps.shape"
        )
    return Feed(feed.start, ids, taps)


def _in_vocabulary(ids: Sequence[int], hello: Hello, field: str) -> None:
    if ids and max(ids) >= hello.vocab_size:
        raise InvalidRequest(f"id {max(ids)} is not in a vocabulary of {hello.vocab_size}", field=field)


def _mode(mode: SpeculationMode.ValueType, field: str) -> str:
    return MODES.name(mode, field=field) or "unspecified"


def response_of(response: Response) -> pb.DraftResponse:
    match response:
        case Proposals():
            proposals = pb.Proposals(turn=response.turn, proposals=[_proposal(each) for each in response.proposals])
            proposals.elapsed.FromNanoseconds(round(response.elapsed_s * 1e9))
            return pb.DraftResponse(proposals=proposals)
        case Ack():
            ack = pb.Ack(sequence=response.sequence, epoch=response.epoch, fed=response.fed)
            return pb.DraftResponse(ack=ack)
        case Behind():
            behind = pb.Behind(
                sequence=response.sequence, epoch=response.epoch, fed=response.fed, no_room=response.no_room
            )
            return pb.DraftResponse(behind=behind)
        case Released():
            return pb.DraftResponse(released=pb.Released(sequence=response.sequence, epoch=response.epoch))
        case Welcome():
            refusals = [
                pb.DrafterRefusal(mode=MODES.value(each.mode), name=each.name, reason=each.reason)
                for each in response.refusals
            ]
            welcome = pb.Welcome(
                protocol_version=DRAFT_PROTOCOL_VERSION,
                instance=response.instance,
                drafters=[description_of(each) for each in response.drafters],
                refusals=refusals,
                ring_mapped=response.ring_mapped,
                max_contexts=response.max_contexts,
            )
            return pb.DraftResponse(welcome=welcome)


def _proposal(proposal: Proposal) -> pb.Proposal:
    return pb.Proposal(
        sequence=proposal.sequence,
        epoch=proposal.epoch,
        frontier=proposal.frontier,
        anchor=proposal.anchor,
        ids=proposal.draft.ids,
        confidences=proposal.draft.confidences,
    )


def description_of(description: Description) -> pb.DrafterDescription:
    return pb.DrafterDescription(
        mode=MODES.value(description.mode),
        name=description.name,
        max_draft_tokens=description.max_draft_tokens,
        default_draft_tokens=description.default_draft_tokens,
        context_length=description.context_length,
        tap_layers=description.tap_layers,
        needs_final_hidden=description.needs_final_hidden,
        gives_confidence=description.gives_confidence,
        target_hidden_size=description.target_hidden_size,
        target_vocab_size=description.target_vocab_size,
        target_fingerprint=description.target_fingerprint or "",
    )
