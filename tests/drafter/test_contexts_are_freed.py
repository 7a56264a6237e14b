import asyncio
import random

import pytest

from services.drafter.interface import Feed
from services.drafter.messages import Proposals
from services.errors import InvalidRequest

pytestmark = pytest.mark.anyio


async def test_500_sequences_that_end_in_every_way_leave_nothing(drafter, streaming):
    rng = random.Random(0)
    async with streaming(drafter) as (drafting, stream):
        for id in range(500):
            stream.open(id)
            stream.feed(id, 0, [id] * rng.randrange(1, 2000))
            stream.turn(id, stream.entry(id, 5000, id))
            match rng.randrange(4):
                case 0:  # closed while its prompt waits
                    stream.close(id)
                case 1:  # closed twice
                    stream.close(id)
                    stream.close(id)
                case 2:  # started over, then closed
                    stream.open(id, epoch=2)
                    stream.close(id)
                case 3:  # closed once it was served
                    await stream.until(Proposals)
                    stream.close(id)
        stream.end()
        await stream.rest()
        assert drafter.open_contexts == 0
        assert drafting.capacity.taken == 0


async def test_close_frees_at_once_and_not_with_the_next_turn(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.turn(1, stream.entry(1, 0, 1))
        await stream.receive()
        assert drafter.open_contexts == 1
        stream.close(1)
        waiting = asyncio.create_task(stream.receive())
        await asyncio.to_thread(drafter.freed.wait)
        assert drafter.open_contexts == 0
        stream.turn(2)
        await waiting


async def test_the_end_of_a_stream_frees_what_is_open(drafter, streaming):
    async with streaming(drafter) as (drafting, stream):
        for id in range(20):
            stream.open(id)
        stream.feed(3, 0, [4] * 5000)
        stream.turn(1, stream.entry(1, 0, 1))
        await stream.until(Proposals)
        stream.end()
        await stream.rest()
        assert (drafter.open_contexts, drafting.capacity.taken) == (0, 0)


async def test_a_malformed_message_frees_what_is_open(drafter, streaming):
    async with streaming(drafter) as (drafting, stream):
        stream.open(1)
        stream.turn(1, stream.entry(1, 0, 1))
        await stream.receive()
        stream.feed(77, 0, [1])
        with pytest.raises(InvalidRequest):
            await stream.receive()
        assert (drafter.open_contexts, drafting.capacity.taken) == (0, 0)


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_cancelled_stream_frees_what_is_open_behind_the_running_job(drafter, streaming, cancellations):
    drafter.go_on.clear()
    async with streaming(drafter) as (drafting, stream):
        stream.open(1)
        stream.turn(1, stream.entry(1, 1, 5, feed=Feed(0, [5])))
        stream.open(2)
        serving = asyncio.create_task(stream.receive())
        await asyncio.to_thread(drafter.absorbing.wait)
        for _ in range(cancellations):
            serving.cancel()
            await asyncio.sleep(0)
        drafter.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert drafting.capacity.taken == 0
    assert drafter.open_contexts == 0


async def test_streams_are_independent(drafter, streaming):
    async with streaming(drafter, streams=2) as (_, first, second):
        first.open(1, first_id=10)
        second.open(1, first_id=20)
        first.feed(1, 0, [11] * 700)
        first.turn(1, first.entry(1, 700, 11))
        second.turn(1, second.entry(1, 0, 20))
        (answer,) = await second.receive()
        assert answer.proposals[0].draft.ids == (20,)
        first.end()
        await first.rest()
        assert drafter.open_contexts == 1
        second.turn(2, second.entry(1, 1, 21, feed=Feed(0, [21])))
        (answer,) = await second.receive()
        assert answer.proposals[0].draft.ids == (21, 20)


@pytest.mark.parametrize("failing", ["open", "absorb", "draft", "close"])
async def test_a_drafter_that_fails_ends_its_stream_and_frees_the_others(drafter, streaming, failing):
    def fail(*args):
        raise ZeroDivisionError

    other = type(drafter)("mtp")
    async with streaming(drafter, other) as (drafting, stream):
        for id in range(5):
            stream.open(id, modes=("mtp",))
        stream.turn(1)
        await stream.receive()
        setattr(drafter, failing, fail)
        stream.open(9)
        stream.turn(2, stream.entry(9, 1, 8, feed=Feed(0, [8])))
        stream.end()
        with pytest.raises(ZeroDivisionError):
            await stream.rest()
        assert (other.open_contexts, drafting.capacity.taken) == (0, 0)
