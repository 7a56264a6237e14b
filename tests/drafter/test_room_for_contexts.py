"""Streams share the room for contexts. An Open that finds none costs its sequence the drafts, and no stream its end."""

import pytest

from services.drafter.messages import Behind
from services.errors import InvalidRequest, Overloaded

pytestmark = pytest.mark.anyio


async def test_a_sequence_without_room_is_told_so_and_the_others_go_on(drafter, streaming):
    async with streaming(drafter, streams=2, max_contexts=2) as (drafting, first, second):
        first.open(1)
        second.open(1)
        for stream in (first, second):
            stream.turn(1, stream.entry(1, 0, 1))
            await stream.receive()
        second.open(2)
        assert await second.receive() == [Behind(2, 1, 0, no_room=True)]
        second.feed(2, 0, [5, 6])
        second.turn(2, second.entry(1, 0, 1), second.entry(2, 2, 6))
        (answer,) = await second.receive()
        assert [proposal.sequence for proposal in answer.proposals] == [1]
        first.turn(2, first.entry(1, 0, 1))
        (answer,) = await first.receive()
        assert answer.proposals[0].draft.ids == (1,)
        assert (drafter.open_contexts, drafting.capacity.taken) == (2, 2)


async def test_a_context_that_is_closed_makes_room_for_another_stream(drafter, streaming):
    async with streaming(drafter, streams=2, max_contexts=1) as (drafting, first, second):
        first.open(1)
        first.turn(1, first.entry(1, 0, 1))
        await first.receive()
        second.open(1)
        assert await second.receive() == [Behind(1, 1, 0, no_room=True)]
        first.close(1)
        await first.taken_in()
        second.close(1)
        second.open(1)
        second.turn(1, second.entry(1, 0, 1))
        (answer,) = await second.receive()
        assert answer.proposals[0].draft.ids == (1,)
        assert drafting.capacity.taken == 1


async def test_a_sequence_started_over_may_find_room_or_lose_it(drafter, streaming):
    async with streaming(drafter, streams=2, max_contexts=1) as (drafting, first, second):
        first.open(1)
        first.turn(1, first.entry(1, 0, 1))
        await first.receive()
        second.open(1)
        second.open(1, epoch=2)
        assert await second.receive() == [Behind(1, 2, 0, no_room=True)]
        first.close(1)
        await first.taken_in()
        second.open(1, epoch=3)
        second.turn(1, second.entry(1, 0, 1, epoch=3))
        (answer,) = await second.receive()
        assert answer.proposals[0].epoch == 3
        assert drafting.capacity.taken == 1


@pytest.mark.parametrize("epoch", [0, 1])
async def test_an_epoch_that_found_no_room_cannot_be_opened_again(drafter, streaming, epoch):
    async with streaming(drafter, streams=2, max_contexts=1) as (_, first, second):
        first.open(1)
        first.turn(1, first.entry(1, 0, 1))
        await first.receive()
        second.open(1)
        await second.receive()
        second.open(1, epoch=epoch)
        with pytest.raises(InvalidRequest, match="has been"):
            await second.receive()


async def test_a_sequence_that_was_never_opened_is_still_a_mistake(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.feed(7, 0, [1], epoch=0)
        with pytest.raises(InvalidRequest, match="not open"):
            await stream.receive()


async def test_a_stream_that_opens_more_than_it_was_offered_is_ended(drafter, streaming):
    """Else what is remembered of it would have no end."""
    async with streaming(drafter, streams=2, max_contexts=2) as (drafting, first, second):
        first.open(1)
        first.turn(1, first.entry(1, 0, 1))
        await first.receive()
        for id in range(3):
            second.open(id)
        with pytest.raises(Overloaded):
            await second.rest()
        assert drafting.capacity.taken == 1


async def test_the_end_of_a_stream_gives_back_no_more_than_it_took(drafter, streaming):
    async with streaming(drafter, streams=2, max_contexts=1) as (drafting, first, second):
        first.open(1)
        first.turn(1, first.entry(1, 0, 1))
        await first.receive()
        second.open(1)
        await second.receive()
        second.end()
        await second.rest()
        assert drafting.capacity.taken == 1
