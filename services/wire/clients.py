"""Channels to our own services. Importing this opens nothing: a channel belongs to the process and the event loop
that made it, so each is made where it is used and closed there (`async with target_channel(address) as channel`)."""

import asyncio

import grpc.aio

from services.wire.limits import CLIENT_OPTIONS


def target_channel(address: str) -> grpc.aio.Channel:
    """For a gateway: `TargetServiceStub(channel)`. Connects at the first call; every call takes its own timeout."""
    return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)


def drafter_channel(address: str) -> grpc.aio.Channel:
    """For a target: `DrafterServiceStub(channel)`."""
    return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)


def gateway_channel(address: str) -> grpc.aio.Channel:
    """For a caller of the public service: `GenerationServiceStub(channel)`."""
    return grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS)


async def before_retrying(seconds: float) -> None:
    """Wait, unless this task was cancelled: then raise CancelledError. A loop around calls needs that, since gRPC
    answers a cancellation that meets a failing call with the call's own status, and the loop would go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    await asyncio.sleep(seconds)
