"""Streams that are cancelled in the middle leave neither tasks nor memory behind, at either end."""

import asyncio
import gc
from pathlib import Path

import pytest
from tandem.v1 import drafter_pb2 as pb

pytestmark = pytest.mark.anyio

MOST_KIB = 20_000
TURN = pb.DraftRequest(turn=pb.Turn(turn=1))


def resident_kib() -> int:
    """Of this process, in which both ends run."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def cancelled(stub, count: int) -> None:
    for _ in range(count):
        call = stub.Draft()
        await call.write(TURN)
        await call.read()
        call.cancel()


async def check(peers, *, before: int, count: int) -> None:
    """`before`: as many as it takes until buffers have grown to their size."""
    await cancelled(peers.stub, before)
    tasks, resident = len(asyncio.all_tasks()), resident_kib()
    await cancelled(peers.stub, count)
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - the server's ends of the last few
            await asyncio.sleep(0)
    gc.collect()
    assert resident_kib() - resident < MOST_KIB


async def test_of_hundreds_nothing_stays(running):
    async with running() as peers:
        await check(peers, before=100, count=300)


@pytest.mark.full
async def test_of_twenty_thousand_nothing_stays(running):
    async with running() as peers:
        await check(peers, before=2000, count=20_000)
