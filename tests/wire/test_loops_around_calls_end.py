"""A task that repeats a call for ever ends when it is cancelled, wherever the cancellation meets it."""

import asyncio
import contextlib

import grpc.aio
import pytest
from tandem.v1.drafter_pb2_grpc import DrafterServiceStub

from services.wire.clients import before_retrying, drafter_channel

pytestmark = pytest.mark.anyio


async def call_a_dead_drafter() -> None:
    async with drafter_channel("127.0.0.1:1") as channel:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await DrafterServiceStub(channel).Draft().read()


async def for_ever(call) -> None:
    while True:
        await call()
        await before_retrying(0)


async def test_a_cancellation_that_a_call_swallowed_ends_the_loop():
    calling = asyncio.Event()

    async def swallowing():
        calling.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = asyncio.create_task(for_ever(swallowing))
    await calling.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done
    assert task.cancelled()


@pytest.mark.parametrize("steps", range(0, 160, 4))
async def test_a_loop_around_calls_that_fail_ends_at_any_step(steps):
    task = asyncio.create_task(for_ever(call_a_dead_drafter))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done
