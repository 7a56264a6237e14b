from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer, DrafterServiceStub

from services.wire.clients import drafter_channel
from services.wire.serving import drafter_service, serving


class Echo(DrafterServiceServicer):
    """Does what the test says, then answers."""

    def __init__(self, act: Callable) -> None:
        self.act = act

    async def Describe(self, request, context):
        await self.act()
        return pb.DrafterServiceDescribeResponse(instance="echo")

    async def Draft(self, request_iterator, context):
        async for request in request_iterator:
            await self.act()
            yield pb.DraftResponse(proposals=pb.Proposals(turn=request.turn.turn))


async def nothing() -> None:
    """An act that does nothing."""


@pytest.fixture
def connected():
    """A server on a free port that is not ready yet, with a client of it."""

    @asynccontextmanager
    async def connect(act: Callable = nothing, *, grace_s: float = 5.0) -> AsyncIterator[SimpleNamespace]:
        async with AsyncExitStack() as both:
            serves = await both.enter_async_context(AsyncExitStack())
            server = await serves.enter_async_context(
                serving("127.0.0.1:0", [drafter_service(Echo(act))], grace_s=grace_s)
            )
            channel = await both.enter_async_context(drafter_channel(server.address))
            yield SimpleNamespace(server=server, channel=channel, stub=DrafterServiceStub(channel), stop=serves.aclose)

    return connect


@pytest.fixture
def running(connected):
    """The same, ready."""

    @asynccontextmanager
    async def run(*args, **kwargs) -> AsyncIterator[SimpleNamespace]:
        async with connected(*args, **kwargs) as peers:
            await peers.server.ready()
            yield peers

    return run
