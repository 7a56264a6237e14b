import asyncio
import threading

import pytest

from services.drafter.interface import Feed
from services.drafter.messages import Ack, Behind, Proposals
from services.drafter.session import OPEN_TURNS, PIECE_POSITIONS, TURN_POSITIONS
from services.errors import Unavailable

pytestmark = pytest.mark.anyio
PROMPT = [7] * (3 * PIECE_POSITIONS)


async def test_a_turn_waits_for_one_piece_of_a_long_feed_and_no_more(drafter, streaming):
    drafter.go_on.clear()
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.feed(1, 0, PROMPT)
        stream.open(2)
        answers = asyncio.create_task(stream.receive(4))
        await asyncio.to_thread(drafter.absorbing.wait)  # the first piece is being absorbed ...
        stream.turn(1, stream.entry(2, 0, 2))
        await stream.taken_in()  # ... and the loop still reads: it does not compute
        drafter.go_on.set()
        kinds = [type(answer) for answer in await answers]
    piece = PIECE_POSITIONS
    assert drafter.calls == [
        ("absorb", 1, piece),
        ("draft", 2),
        ("absorb", 1, 2 * piece),
        ("absorb", 1, 3 * piece),
    ]
    assert kinds[:2] == [Ack, Proposals]
    assert len(drafter.threads - {threading.get_ident()}) == len(drafter.threads) == 1


@pytest.mark.parametrize(("budget_s", "drafts"), [(0.0, ()), (1e9, (3, 2))])
async def test_a_turn_that_waited_longer_than_its_budget_absorbs_its_feed_and_drafts_nothing(
    drafter, streaming, budget_s, drafts
):
    drafter.go_on.clear()
    async with streaming(drafter, streams=2) as (_, other, stream):
        other.open(1)
        other.feed(1, 0, PROMPT[:PIECE_POSITIONS])
        busy = asyncio.create_task(other.receive())
        await asyncio.to_thread(drafter.absorbing.wait)  # another target's prompt holds the thread
        stream.open(2)
        stream.turn(1, stream.entry(2, 1, 3, feed=Feed(0, [3])), budget_s=budget_s)
        answer = asyncio.create_task(stream.receive())
        await stream.taken_in()
        drafter.go_on.set()
        [proposals], _ = await asyncio.gather(answer, busy)
    [proposal] = proposals.proposals
    assert (proposal.frontier, proposal.draft.ids) == (1, drafts)
    assert ("absorb", 2, 1) in drafter.calls


async def test_long_feeds_of_several_sequences_are_absorbed_in_turns(drafter, streaming):
    drafter.go_on.clear()
    async with streaming(drafter) as (_, stream):
        for id in (1, 2):
            stream.open(id)
            stream.feed(id, 0, PROMPT)
        answers = asyncio.create_task(stream.receive(6))
        await stream.taken_in()
        drafter.go_on.set()
        acks = await answers
    assert [ack.sequence for ack in acks] == [1, 2, 1, 2, 1, 2]
    assert [ack.fed for ack in acks[-2:]] == [len(PROMPT)] * 2


async def test_every_turn_gets_exactly_one_answer_even_an_empty_one_and_after_the_last_request(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        for number in range(3 * OPEN_TURNS):  # more than wait at once
            stream.turn(number, stream.entry(1, 0, 1)) if number % 2 else stream.turn(number)
        stream.end()
        answers = await stream.rest()
    assert [answer.turn for answer in answers] == list(range(3 * OPEN_TURNS))
    assert [len(answer.proposals) for answer in answers] == [number % 2 for number in range(3 * OPEN_TURNS)]


async def test_no_more_turns_are_read_than_may_wait(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        for number in range(2 * OPEN_TURNS):
            stream.turn(number)
        answers = await stream.receive()
        # Beyond those that wait: one was answered, and one is in the hands of the reader.
        assert stream._requests.qsize() >= OPEN_TURNS - 2
        answers += await stream.receive(2 * OPEN_TURNS - 1)
    assert [answer.turn for answer in answers] == list(range(2 * OPEN_TURNS))


async def test_a_turn_absorbs_its_own_feed_and_batches_its_sequences(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        for id in (1, 2, 3):
            stream.open(id)
        stream.turn(
            9,
            stream.entry(1, 2, 12, feed=Feed(0, [11, 12])),
            stream.entry(2, 0, 2, most=9),
            stream.entry(3, 1, 31, feed=Feed(0, [31]), most=0),
        )
        (answer,) = await stream.receive()
    assert answer.turn == 9
    assert [(each.sequence, each.frontier, each.anchor, each.draft.ids) for each in answer.proposals] == [
        (1, 2, 12, (12, 11, 1)),
        (2, 0, 2, (2,)),
        (3, 1, 31, ()),
    ]
    assert drafter.calls == [("absorb", 1, 2), ("absorb", 3, 1), ("draft", 1, 2)]


async def test_a_sequence_whose_prompt_still_waits_is_behind_and_drafts_when_it_has_caught_up(drafter, streaming):
    drafter.go_on.clear()
    end = len(PROMPT)
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.open(2)
        stream.feed(1, 0, PROMPT)
        answers = asyncio.create_task(stream.until(Proposals))
        await asyncio.to_thread(drafter.absorbing.wait)
        # What this turn carries comes after feeds that still wait; it must not be lost.
        stream.turn(1, stream.entry(1, end + 1, 8, feed=Feed(end, [8])), stream.entry(2, 0, 2))
        await stream.taken_in()
        drafter.go_on.set()
        ack, behind, proposals = await answers
        assert ack == Ack(1, 1, PIECE_POSITIONS)
        assert behind == Behind(1, 1, PIECE_POSITIONS)
        assert [each.sequence for each in proposals.proposals] == [2]
        acks = [*(await stream.receive(3))]
        assert acks[-1] == Ack(1, 1, end + 1)
        stream.turn(2, stream.entry(1, end + 1, 8))
        (proposals,) = await stream.receive()
    assert proposals.proposals[0].draft.ids == (8, 7, 7, 7)


async def test_a_little_that_waits_is_absorbed_by_the_turn_rather_than_making_it_behind(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.feed(1, 0, [5] * (TURN_POSITIONS - 1))
        stream.turn(1, stream.entry(1, TURN_POSITIONS, 6, feed=Feed(TURN_POSITIONS - 1, [6])))
        answers = await stream.until(Proposals)
    assert answers[-1].proposals[0].draft.ids == (6, 5, 5, 5)


async def test_feeds_that_follow_a_waiting_turn_do_not_take_part_in_it(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.turn(1, stream.entry(1, 0, 1))
        stream.feed(1, 0, [2, 3])
        stream.turn(2, stream.entry(1, 2, 3))
        stream.end()
        answers = [answer for answer in await stream.rest() if isinstance(answer, Proposals)]
    assert [answer.proposals[0].draft.ids for answer in answers] == [(1,), (3, 2, 1)]


async def test_a_sequence_that_closes_while_its_turn_is_answered_is_left_out(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        for id in (1, 2, 3):
            stream.open(id)
        stream.turn(1, stream.entry(1, 9, 1), stream.entry(2, 0, 2), stream.entry(3, 0, 3))
        assert await stream.receive() == [Behind(1, 1, 0)]
        stream.close(2)
        await stream.taken_in()
        (answer,) = await stream.receive()
    assert [each.sequence for each in answer.proposals] == [3]


async def test_a_draining_stream_answers_what_it_was_asked_and_then_ends_as_unavailable(drafter, streaming):
    drafter.go_on.clear()
    async with streaming(drafter) as (drafting, stream):
        stream.open(1)
        stream.turn(1, stream.entry(1, 1, 5, feed=Feed(0, [5])))
        stream.turn(2, stream.entry(1, 1, 5))
        answers = asyncio.create_task(stream.receive(2))
        await asyncio.to_thread(drafter.absorbing.wait)
        drafting.drain()
        stream.turn(3, stream.entry(1, 1, 5))  # too late
        drafter.go_on.set()
        assert [answer.turn for answer in await answers] == [1, 2]
        with pytest.raises(Unavailable):
            await stream.receive()
        with pytest.raises(Unavailable):
            drafting.greet(None)
    assert drafter.open_contexts == 0
