"""The service over a real socket."""

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from tandem.v1 import drafter_pb2 as pb
from tandem.v1 import types_pb2
from tandem.v1.drafter_pb2_grpc import DrafterServiceStub

from services.drafter.drafting import Drafting, misfit
from services.drafter.interface import Description
from services.drafter.messages import Hello
from services.drafter.ngram import NgramDrafter
from services.drafter.servicer import DrafterServicer
from services.errors import InvalidRequest, Overloaded, TandemError, Unavailable, Unsupported
from services.wire.clients import drafter_channel
from services.wire.serving import drafter_service, serving
from services.wire.status import raising

pytestmark = pytest.mark.anyio
NGRAM, MTP, DFLASH = types_pb2.SPECULATION_MODE_NGRAM, types_pb2.SPECULATION_MODE_MTP, types_pb2.SPECULATION_MODE_DFLASH
BF16 = types_pb2.DATA_TYPE_BFLOAT16
HELLO = pb.DraftRequest(
    hello=pb.Hello(protocol_version=1, vocab_size=100, hidden_size=4, layers=8, dtype=BF16, weights_fingerprint="w")
)
OPEN = pb.DraftRequest(open=pb.Open(sequence=1, epoch=1, first_id=1, modes=[NGRAM], max_positions=1000))


def feed(ids=(2, 1), **rest):
    return pb.Feed(**{"sequence": 1, "epoch": 1, "start": 0, "ids": ids} | rest)


def turn(number=1, **rest):
    entry = {"sequence": 1, "epoch": 1, "frontier": 4, "anchor": 1, "mode": NGRAM, "max_draft_tokens": 3} | rest
    return pb.DraftRequest(turn=pb.Turn(turn=number, sequences=[pb.TurnSequence(**entry)]))


@pytest.fixture
def served():
    @asynccontextmanager
    async def serve(*drafters, max_contexts=8):
        with Drafting.of(drafters or (NgramDrafter(),), max_contexts=max_contexts) as drafting:
            async with (
                serving("127.0.0.1:0", [drafter_service(DrafterServicer(drafting))], grace_s=60.0) as server,
                drafter_channel(server.address) as channel,
            ):
                await server.ready()
                yield SimpleNamespace(drafting=drafting, server=server, stub=DrafterServiceStub(channel))
            # The server has ended, and every call with it.
            assert drafting.capacity.taken == 0

    return serve


async def test_a_target_is_welcomed_and_drafted_for(served):
    async with served() as process:
        call = process.stub.Draft()
        for request in (HELLO, OPEN, pb.DraftRequest(feed=feed()), turn(feed=feed((2, 1), start=2))):
            await call.write(request)
        welcome = (await call.read()).welcome
        answers = [await call.read()]
        while not answers[-1].HasField("proposals"):
            answers.append(await call.read())
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        described = await process.stub.Describe(pb.DrafterServiceDescribeRequest())
    assert welcome.protocol_version == 1
    assert not welcome.ring_mapped
    assert (described.instance, list(described.drafters)) == (welcome.instance, list(welcome.drafters))
    (drafter,) = welcome.drafters
    assert (drafter.mode, drafter.max_draft_tokens, drafter.default_draft_tokens) == (NGRAM, 15, 7)
    (proposal,) = answers[-1].proposals.proposals
    assert (proposal.frontier, proposal.anchor, list(proposal.ids)) == (4, 1, [2, 1, 2])
    assert len(proposal.confidences) == 3


async def test_a_drafter_made_for_another_target_is_refused_by_itself(served):
    class Made(NgramDrafter):
        def __init__(self, mode, **made_for):
            super().__init__()
            self.description = Description(
                mode=mode, name=f"{mode} drafter", max_draft_tokens=1, default_draft_tokens=1, **made_for
            )

    others = (
        Made("mtp", target_fingerprint="other"),
        Made("dflash", target_hidden_size=8),
        Made(
            "dflash2",
            target_vocab_size=100,
            target_hidden_size=4,
            target_fingerprint="w",
            tap_layers=(7,),
            needs_final_hidden=True,
        ),
    )
    async with served(NgramDrafter(), *others) as process:
        call = process.stub.Draft()
        await call.write(HELLO)
        welcome = (await call.read()).welcome
        call.cancel()
    assert [each.mode for each in welcome.drafters] == [NGRAM, types_pb2.SPECULATION_MODE_DFLASH2]
    assert [(each.mode, each.name) for each in welcome.refusals] == [(MTP, "mtp drafter"), (DFLASH, "dflash drafter")]
    assert "other" in welcome.refusals[0].reason
    assert "hidden size 8" in welcome.refusals[1].reason


@pytest.mark.parametrize(
    ("target", "needs", "why"),
    [
        ({"layers": 7}, {"tap_layers": (2, 7)}, "layer 7"),
        ({"dtype": None}, {"tap_layers": (2,)}, "dtype"),
        ({"hidden_size": 0}, {"needs_final_hidden": True}, "hidden size"),
    ],
)
async def test_a_drafter_that_needs_what_the_target_does_not_have_is_refused(target, needs, why):
    known = {"vocab_size": 100, "hidden_size": 4, "weights_fingerprint": "w", "layers": 8, "dtype": "bf16"}
    described = Description(mode="mtp", name="needy", max_draft_tokens=1, default_draft_tokens=1, **needs)
    assert misfit(described, Hello(**known)) is None
    assert why in misfit(described, Hello(**known | target))


def hello(**rest):
    message = pb.DraftRequest()
    message.CopyFrom(HELLO)
    message.hello.MergeFrom(pb.Hello(**rest))
    return message


RING = types_pb2.Tensor(dtype=types_pb2.DATA_TYPE_BFLOAT16, shape=[2, 1, 4], ring=types_pb2.RingSlot(slot=1))
SINGLE = types_pb2.Tensor(dtype=types_pb2.DATA_TYPE_FLOAT32, shape=[2, 1, 4], inline=bytes(32))
WIDE = types_pb2.Tensor(dtype=types_pb2.DATA_TYPE_BFLOAT16, shape=[2, 1, 5], inline=bytes(20))
ENTRY = "turn.sequences[0]"
BAD_FEED = {
    "an id out of the vocabulary": (feed([100]), "ids"),
    "the largest id there is": (feed([2**32 - 1]), "ids"),
    "taps of the wrong width": (feed(taps=WIDE), "taps.shape"),
    "taps for fewer positions": (feed([2], taps=WIDE), "taps.shape"),
    "taps of another dtype": (feed(taps=SINGLE), "taps.dtype"),
    "taps in a ring": (feed(taps=RING), "taps.payload"),
}
REFUSED = {
    "nothing at all": ([], InvalidRequest, "hello"),
    "another protocol": ([hello(protocol_version=2)], Unsupported, "hello.protocol_version"),
    "something before Hello": ([OPEN], InvalidRequest, "hello"),
    "Hello twice": ([HELLO, HELLO], InvalidRequest, "hello"),
    "an empty message": ([HELLO, pb.DraftRequest()], InvalidRequest, "message"),
    "a budget below nothing": (
        [HELLO, pb.DraftRequest(turn=pb.Turn(budget=Duration(seconds=-1)))],
        InvalidRequest,
        "turn.budget",
    ),
    "a sequence that is not open": ([HELLO, turn()], InvalidRequest, f"{ENTRY}.sequence"),
    "a mode that is not loaded": ([HELLO, OPEN, turn(mode=MTP)], InvalidRequest, f"{ENTRY}.mode"),
    "a mode that does not exist": ([HELLO, OPEN, turn(mode=99)], InvalidRequest, f"{ENTRY}.mode"),
    "no mode": ([HELLO, OPEN, turn(mode=0)], InvalidRequest, f"{ENTRY}.mode"),
    "the feed of another sequence": ([HELLO, OPEN, turn(feed=feed(sequence=2))], InvalidRequest, f"{ENTRY}.feed"),
    **{
        what: ([HELLO, OPEN, pb.DraftRequest(feed=bad)], InvalidRequest, f"feed.{field}")
        for what, (bad, field) in BAD_FEED.items()
    },
    **{
        f"{what}, in a turn": ([HELLO, OPEN, turn(feed=bad)], InvalidRequest, f"{ENTRY}.feed.{field}")
        for what, (bad, field) in BAD_FEED.items()
    },
}


@pytest.mark.parametrize(("requests", "error", "field"), REFUSED.values(), ids=REFUSED)
async def test_a_malformed_stream_ends_with_the_status_that_names_the_field(served, requests, error, field):
    async with served() as process:
        with pytest.raises(TandemError) as refused, raising():
            async for _ in process.stub.Draft(iter(requests)):
                pass
    assert (type(refused.value), refused.value.field) == (error, field)


async def test_more_sequences_than_fit_are_resource_exhausted(served):
    async with served(max_contexts=1) as process:
        second = pb.DraftRequest(open=pb.Open(sequence=2, epoch=1, modes=[NGRAM], max_positions=9))
        with pytest.raises(Overloaded), raising():
            async for _ in process.stub.Draft(iter([HELLO, OPEN, second])):
                pass


async def test_two_streams_of_one_process_share_nothing(served):
    async with served() as process:
        first, second = process.stub.Draft(), process.stub.Draft()
        for call in (first, second):
            await call.write(HELLO)
            await call.read()
            await call.write(OPEN)
        await first.write(turn(feed=feed([2, 1, 2, 1])))
        await second.write(turn(feed=feed([3, 1, 3, 1])))
        drafts = [(await call.read()).proposals.proposals[0].ids for call in (first, second)]
        first.cancel()
        await second.write(turn(2))
        drafts.append((await second.read()).proposals.proposals[0].ids)
        second.cancel()
    assert [list(ids) for ids in drafts] == [[2, 1, 2], [3, 1, 3], [3, 1, 3]]


async def test_a_stream_that_only_waits_ends_as_unavailable_when_the_process_drains(served):
    async with served() as process:
        call = process.stub.Draft()
        await call.write(HELLO)
        await call.read()
        await process.server.draining()
        process.drafting.drain()
        with pytest.raises(Unavailable), raising():
            await call.read()


PROGRAM = """
import asyncio, sys
from services.config.settings import DrafterSettings
from services.drafter.process import run

async def main():
    await run(DrafterSettings(listen="127.0.0.1:0"))
    assert "torch" not in sys.modules

asyncio.run(main())
"""


async def test_the_program_says_where_it_listens_and_ends_its_streams_at_sigterm_without_ever_loading_torch():
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE)
    said = json.loads(await program.stdout.readline())
    async with drafter_channel(said["address"]) as channel:
        call = DrafterServiceStub(channel).Draft()
        await call.write(HELLO)
        assert (await call.read()).HasField("welcome")
        program.send_signal(signal.SIGTERM)
        with pytest.raises(Unavailable), raising():
            await call.read()
    assert said["role"] == "drafter"
    assert await program.wait() == 0
    assert await program.stdout.read() == b""
