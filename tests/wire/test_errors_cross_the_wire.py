import logging

import grpc.aio
import pytest
from grpc_status import rpc_status
from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceStub

from services import errors
from services.wire.clients import drafter_channel
from services.wire.status import TABLE, raising

pytestmark = pytest.mark.anyio
ASK = pb.DrafterServiceDescribeRequest()
TURN = pb.DraftRequest(turn=pb.Turn(turn=1))

RAISED = [
    errors.InvalidRequest("temperature is 3; 0..2 is legal", field="sampling.temperature"),
    errors.InvalidRequest("no field can be named"),
    errors.ContextTooLong("prompt of 9000 and 10 more pass 8192", field="messages"),
    errors.UnknownModel("no model `x`; served is `smöl`"),
    errors.Unsupported("mtp is not loaded", field="speculation.mode"),
    errors.TokenizerMismatch("fetch the tokenizer again"),
    errors.TooLarge("bodies end at 8 MiB"),
    errors.Overloaded("64 requests wait", retry_after_s=2.5),
    errors.Unavailable("loading", retry_after_s=0.25),
    errors.DeadlineExceeded("300 ms are over"),
    errors.Cancelled("nobody waits"),
]


def raiser(error):
    async def act():
        raise error

    return act


def facts(error):
    return type(error), str(error), getattr(error, "field", None), getattr(error, "retry_after_s", None)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_the_class_the_text_and_the_hint_come_back(running, error):
    async with running(raiser(error)) as peers:
        with pytest.raises(errors.TandemError) as unary, raising():
            await peers.stub.Describe(ASK)
        with pytest.raises(errors.TandemError) as stream, raising():
            async for _ in peers.stub.Draft(iter([TURN])):
                pass
    assert facts(unary.value) == facts(stream.value) == facts(error)


def test_every_error_that_a_request_can_cause_is_in_the_table():
    before_a_port_opens = {errors.BadCheckpoint, errors.BadConfig}
    tree = {cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.TandemError)}
    assert set(TABLE) == tree - before_a_port_opens - {errors.TandemError}
    assert {type(error) for error in RAISED} == set(TABLE) - {errors.Internal}


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (errors.InvalidRequest("no", field="n"), {"ErrorInfo", "BadRequest"}),
        (errors.UnknownModel("no"), {"ErrorInfo", "ResourceInfo"}),
        (errors.Unsupported("no", field="n"), {"ErrorInfo", "PreconditionFailure"}),
        (errors.Overloaded("no"), {"ErrorInfo", "RetryInfo"}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_other_clients_find_the_details_that_google_rpc_defines(running, error, kinds):
    async with running(raiser(error)) as peers:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await peers.stub.Describe(ASK)
    status = rpc_status.from_call(caught.value)
    assert {detail.TypeName().removeprefix("google.rpc.") for detail in status.details} == kinds


@pytest.mark.parametrize("error", [KeyError("/secret/path"), errors.Internal("secret"), errors.BadConfig("secret")])
async def test_an_unexpected_exception_is_masked_for_the_client_and_logged_with_its_trace(running, error, caplog):
    async with running(raiser(error)) as peers:
        with caplog.at_level(logging.ERROR), pytest.raises(errors.Internal) as caught, raising():
            await peers.stub.Describe(ASK)
    assert str(caught.value) == "internal error"
    assert "secret" not in repr(caught.value.__cause__)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


async def test_a_long_message_arrives_cut_rather_than_not_at_all(running):
    async with running(raiser(errors.InvalidRequest("\N{SNOWMAN}" * 100_000, field="x" * 10_000))) as peers:
        with pytest.raises(errors.InvalidRequest) as caught, raising():
            await peers.stub.Describe(ASK)
    assert set(str(caught.value)) == {"\N{SNOWMAN}"}


async def test_a_peer_that_is_not_there_is_unavailable_without_naming_addresses(running):
    async with running() as peers:
        pass
    with pytest.raises(grpc.aio.UsageError):  # the fixture's channel is closed
        await peers.stub.Describe(ASK)
    async with drafter_channel(peers.server.address) as channel:
        with pytest.raises(errors.Unavailable) as caught, raising():
            await DrafterServiceStub(channel).Describe(ASK)
    assert str(peers.server.port) not in str(caught.value)
