"""The way to a running gateway. Errors name the address that they came from."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from services.errors import Unavailable
from services.wire.clients import gateway_channel
from services.wire.status import raising

if TYPE_CHECKING:
    from tandem.v1.generation_pb2_grpc import GenerationServiceAsyncStub


@asynccontextmanager
async def gateway(address: str) -> AsyncIterator["GenerationServiceAsyncStub"]:
    """A stub whose calls, inside the body, raise errors of ours."""
    async with gateway_channel(address) as channel:
        try:
            with raising():
                yield GenerationServiceStub(channel)
        except Unavailable as error:
            raise Unavailable(f"gateway at {address}: {error}") from error
