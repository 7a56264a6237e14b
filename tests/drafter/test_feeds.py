from dataclasses import replace

import pytest

from services.drafter.interface import Feed
from services.drafter.messages import Ack, Behind, Proposals, SequenceFeed
from services.errors import InvalidRequest
from services.wire.codec import TensorBytes

pytestmark = pytest.mark.anyio


async def drafted(stream, *entries, number=1):
    """The drafts by sequence of one turn, and what was said before its answer."""
    stream.turn(number, *entries)
    *before, answer = await stream.until(Proposals)
    return {each.sequence: each.draft.ids for each in answer.proposals}, before


async def test_a_feed_with_positions_missing_before_it_is_behind_and_a_refill_heals_it(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.feed(1, 0, [11, 12])
        stream.feed(1, 3, [14])
        drafts, before = await drafted(stream, stream.entry(1, 4, 14))
        assert drafts == {}
        assert {answer for answer in before if isinstance(answer, Behind)} <= {Behind(1, 1, 0), Behind(1, 1, 2)}
        stream.feed(1, 2, [13, 14])
        assert (await drafted(stream, stream.entry(1, 4, 14)))[0] == {1: (14, 13, 12, 11)}


async def test_a_turn_whose_feed_leaves_a_hole_is_behind(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        drafts, before = await drafted(stream, stream.entry(1, 2, 12, feed=Feed(1, [12])))
        assert (drafts, before) == ({}, [Behind(1, 1, 0)])
        assert (await drafted(stream, stream.entry(1, 2, 12, feed=Feed(0, [11, 12]))))[0] == {1: (12, 11, 1)}


async def test_a_turn_whose_feed_is_long_is_behind_and_the_feed_is_absorbed_after_it(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        drafts, before = await drafted(stream, stream.entry(1, 900, 11, feed=Feed(0, [11] * 900)))
        assert (drafts, before) == ({}, [Behind(1, 1, 0)])
        assert (await stream.receive(2))[-1] == Ack(1, 1, 900)
        assert (await drafted(stream, stream.entry(1, 900, 11)))[0] == {1: (11, 11, 11, 11)}


async def test_what_was_fed_before_is_passed_over_and_acknowledged(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1)
        stream.feed(1, 0, [11, 12])
        assert await stream.receive() == [Ack(1, 1, 2)]
        stream.feed(1, 0, [11, 12])
        assert await stream.receive() == [Ack(1, 1, 2)]
        stream.feed(1, 1, [12, 13])  # overlaps
        assert await stream.receive() == [Ack(1, 1, 3)]
        assert (await drafted(stream, stream.entry(1, 3, 13, feed=Feed(2, [13]))))[0] == {1: (13, 12, 11, 1)}


async def test_opening_an_open_sequence_starts_it_over(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1, first_id=1)
        stream.feed(1, 0, [11] * 2000)
        stream.open(1, epoch=2, first_id=2)
        drafts, _ = await drafted(stream, stream.entry(1, 1, 22, epoch=2, feed=Feed(0, [22])))
        assert drafts == {1: (22, 2)}
        assert drafter.open_contexts == 1


async def test_a_short_sequence_after_a_long_one_of_the_same_number_knows_nothing_of_it(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1, first_id=1)
        await drafted(stream, stream.entry(1, 30, 11, feed=Feed(0, [11] * 30)))
        stream.close(1)
        stream.open(1, first_id=2)
        assert (await drafted(stream, stream.entry(1, 0, 2)))[0] == {1: (2,)}


async def test_messages_of_an_epoch_that_is_over_change_nothing(drafter, streaming):
    async with streaming(drafter) as (_, stream):
        stream.open(1, first_id=1)
        stream.open(1, epoch=2, first_id=2)
        stream.feed(1, 0, [11, 12], epoch=1)
        drafts, before = await drafted(stream, stream.entry(1, 2, 12, epoch=1, feed=Feed(0, [11, 12])))
        assert (drafts, before) == ({}, [])
        assert (await drafted(stream, stream.entry(1, 0, 2, epoch=2)))[0] == {1: (2,)}


async def test_taps_are_cut_with_their_positions(drafter, streaming):
    seen = []

    class Tapped(type(drafter)):
        def absorb(self, context, feed):
            super().absorb(context, feed)
            seen.append((feed.start, feed.taps.shape, feed.taps.data))

    async with streaming(Tapped()) as (_, stream):
        stream.open(1)
        taps = TensorBytes("bf16", (3, 1, 1), b"aabbcc")
        await drafted(stream, stream.entry(1, 2, 12, feed=Feed(0, [11, 12], taps.split(2)[0])))
        await drafted(stream, stream.entry(1, 3, 13, feed=Feed(1, [12, 13], taps.split(1)[1])))
    assert seen == [(0, (2, 1, 1), b"aabb"), (2, (1, 1, 1), b"cc")]


def twice(stream):
    stream.turn(1, stream.entry(1, 0, 1), stream.entry(1, 0, 1))


MALFORMED = {
    "a feed of no sequence": (lambda stream: stream.feed(5, 0, [1]), "feed.sequence"),
    "a feed of an epoch to come": (lambda stream: stream.feed(1, 0, [1], epoch=2), "feed.sequence"),
    "a feed past the last position": (lambda stream: stream.feed(1, 0, [1] * 101), "feed.ids"),
    "a turn of no sequence": (lambda stream: stream.turn(1, stream.entry(5, 0, 1)), "turn.sequences[0].sequence"),
    "a turn of an epoch to come": (
        lambda stream: stream.turn(1, stream.entry(1, 0, 1, epoch=2)),
        "turn.sequences[0].sequence",
    ),
    "a turn for another mode": (
        lambda stream: stream.turn(1, stream.entry(1, 0, 1, mode="mtp")),
        "turn.sequences[0].mode",
    ),
    "a turn that goes back": (
        lambda stream: stream.turn(1, stream.entry(1, 0, 1, feed=Feed(0, [2]))),
        "turn.sequences[0].frontier",
    ),
    "a turn with another anchor": (lambda stream: stream.turn(1, stream.entry(1, 0, 3)), "turn.sequences[0].anchor"),
    "a turn that names a sequence twice": (twice, "turn.sequences"),
    "an open of an epoch that has been": (lambda stream: stream.open(1, epoch=1), "open.epoch"),
    "an open of epoch 0": (lambda stream: stream.open(2, epoch=0), "open.epoch"),
    "an open for no mode": (lambda stream: stream.open(2, modes=()), "open.modes"),
    "an open for a mode that was not welcomed": (
        lambda stream: stream.open(2, modes=("ngram", "dflash")),
        "open.modes",
    ),
}


async def test_a_feed_without_the_taps_that_a_drafter_needs_ends_the_stream(drafter, streaming):
    drafter.description = replace(drafter.description, tap_layers=(1, 5), needs_final_hidden=True)
    three, two = TensorBytes("bf16", (1, 3, 4), bytes(24)), TensorBytes("bf16", (1, 2, 4), bytes(16))
    async with streaming(drafter, streams=3) as (_, *streams):
        for stream in streams:
            stream.open(1)
            await drafted(stream, stream.entry(1, 1, 11, feed=Feed(0, [11], three)))
        for stream, taps in zip(streams, (None, two), strict=False):
            stream.send(SequenceFeed(1, 1, Feed(1, [12], taps)))
            with pytest.raises(InvalidRequest, match="3 are needed") as refused:
                await stream.rest()
            assert refused.value.field == "feed.taps"


@pytest.mark.parametrize(("send", "field"), MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_message_ends_the_stream_and_names_the_field(drafter, streaming, send, field):
    async with streaming(drafter) as (_, stream):
        stream.open(1, max_positions=100)
        send(stream)
        with pytest.raises(InvalidRequest) as refused:
            await stream.rest()
    assert refused.value.field == field
