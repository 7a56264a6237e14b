from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer, DrafterServiceStub

from services.wire.clients import drafter_channel
from services.wire.serving import Server, drafter_service, serving


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Echo(DrafterServiceServicer):
    """Answers at once, or does what the test says."""

    def __init__(self, act: Callable | None = None) -> None:
        self.act = act

    async def Describe(self, request, context):
        if self.act is not None:
            await self.act()
        return pb.DrafterServiceDescribeResponse(instance="echo")

    async def Draft(self, request_iterator, context):
        async for request in request_iterator:
            yield pb.DraftResponse(proposals=pb.Proposals(turn=request.turn.turn))
            if self.act is not None:
                await self.act()


Running = Callable[..., AbstractAsyncContextManager[tuple[Server, DrafterServiceStub]]]


@pytest.fixture
def running() -> Running:
    """A ready server on a free port, and a client of it."""

    @asynccontextmanager
    async def run(
        act: Callable | None = None, *, grace_s: float = 5.0
    ) -> AsyncIterator[tuple[Server, DrafterServiceStub]]:
        async with (
            serving("127.0.0.1:0", [drafter_service(Echo(act))], grace_s=grace_s) as server,
            drafter_channel(server.address) as channel,
        ):
            await server.ready()
            yield server, DrafterServiceStub(channel)

    return run
