"""Which drafters a request of each mode is fed to and asks, and what it says where there is none."""

import asyncio
from itertools import repeat

import pytest

from services.errors import Unsupported
from tests.target.always import Always
from tests.target.harness import drive, plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import DFLASH, DFLASH2, MTP, NGRAM, ScriptedDrafter

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(20))
LOADED = {"ngram": NGRAM, "mtp": MTP, "dflash": DFLASH, "dflash2": DFLASH2}


async def test_mode_none_causes_no_drafter_traffic() -> None:
    asked = request(PROMPT, 20, mode="none")
    [updates], _, drafter = await drive([asked], repeat(("right", 7)))
    assert tokens(updates) == plain_answer(asked)
    assert [message.WhichOneof("message") for message in drafter.requests] == ["hello"]
    assert updates[-1].report.counters.by_origin == {"first": 1, "plain": 19}


@pytest.mark.parametrize("mode", LOADED)
async def test_a_mode_causes_no_traffic_for_the_other_drafters_that_are_loaded(mode: str) -> None:
    asked = request(PROMPT, 20, mode=mode)
    drafter = ScriptedDrafter(truth_of([asked]), repeat(("right", 3)), modes=tuple(LOADED.values()))
    async with system(drafter) as running:
        updates = await running.answer(asked)
        await running.settled()
        await drafter.all_closed()
    assert drafter.faults == [], "its feeds carry the taps of this mode and no others"
    opens = [message.open for message in drafter.requests if message.HasField("open")]
    turns = [message.turn for message in drafter.requests if message.HasField("turn")]
    assert [list(each.modes) for each in opens] == [[LOADED[mode]]]
    assert {each.mode for turn in turns for each in turn.sequences} == {LOADED[mode]}
    assert set(updates[-1].report.counters.by_mode) == {mode}


@pytest.mark.parametrize(("loaded", "runs", "reason"), [((NGRAM, MTP), "ngram", None), ((MTP,), "none", "gate")])
async def test_a_drafter_that_is_left_out_is_fed_nothing(loaded, runs, reason) -> None:
    asked = request(PROMPT, 20, mode="auto")
    drafter = ScriptedDrafter(truth_of([asked]), repeat(("right", 3)), modes=loaded)
    async with system(drafter, policy=Always(left_out={"mtp"})) as running:
        updates = await running.answer(asked)
        await running.settled()
        counted = running.rounds.steering.totals.left_out
    opens = [message.open for message in drafter.requests if message.HasField("open")]
    feeds = [message.feed for message in drafter.requests if message.HasField("feed")]
    assert [list(each.modes) for each in opens] == ([[NGRAM]] if NGRAM in loaded else [])
    assert not any(feed.HasField("taps") for feed in feeds)
    assert drafter.faults == []
    assert counted == {"mtp": 1}
    assert (updates[-1].report.resolved.mode, updates[-1].report.resolved.reason) == (runs, reason)
    assert tokens(updates) == plain_answer(asked)


async def test_mode_none_beside_loaded_drafters_verifies_nothing_and_asks_nobody() -> None:
    plain, other = request(PROMPT, 40, mode="none"), request([1, *PROMPT], 40, mode="mtp")
    drafter = ScriptedDrafter(truth_of([plain, other]), repeat(("right", 3)), modes=tuple(LOADED.values()))
    async with system(drafter) as running:
        alone = await running.answer(plain)
        assert set(running.model.widths[-39:]) == {1}
        assert [message.WhichOneof("message") for message in drafter.requests] == ["hello"]
        beside, _ = await asyncio.gather(running.answer(plain), running.answer(other))
    turns = [message.turn for message in drafter.requests if message.HasField("turn")]
    assert {each.mode for turn in turns for each in turn.sequences} == {MTP}
    for updates in (alone, beside):
        assert tokens(updates) == plain_answer(plain)
        assert updates[-1].report.counters.by_origin == {"first": 1, "plain": 39}
        assert updates[-1].report.resolved.mode == "none"


@pytest.mark.parametrize("mode", [*LOADED, "auto"])
async def test_past_the_context_of_a_drafter_decoding_goes_on_plainly_and_says_so(mode: str) -> None:
    """A prompt that is longer than it, and one that is not when the answer begins."""
    long, grows = request(range(30), 20, mode=mode), request(range(20), 40, mode=mode)
    drafter = ScriptedDrafter(truth_of([long, grows]), repeat(("right", 2)), modes=tuple(LOADED.values()))
    drafter.context_length = 29
    async with system(drafter) as running:
        answers = await asyncio.gather(running.answer(long), running.answer(grows))
        if mode != "auto":
            strict = request(range(30), 20, mode=mode, strict=True)
            with pytest.raises(Unsupported, match="context"):
                await running.answer(strict)
    assert [tokens(each) for each in answers] == [plain_answer(each) for each in (long, grows)]
    first, second = (updates[-1].report for updates in answers)
    assert (first.resolved.mode, first.resolved.reason) == ("none", "context")
    assert first.counters.by_origin == {"first": 1, "plain": 19}
    [*_, switch] = second.counters.switches
    assert (switch.to, switch.reason) == ("none", "context")
    assert second.counters.total("accepted") > 0
    asked = [each for message in drafter.requests for each in message.turn.sequences]
    assert max(each.frontier for each in asked) < drafter.context_length


@pytest.mark.parametrize("mode", ["dflash", "dflash2", "mtp"])
async def test_a_mode_that_is_not_loaded_decodes_plainly_and_says_so(mode: str) -> None:
    asked = request(PROMPT, 10, mode=mode)
    [updates], _, drafter = await drive([asked], repeat(("right", 7)))
    assert tokens(updates) == plain_answer(asked)
    assert (updates[-1].report.resolved.mode, updates[-1].report.resolved.reason) == ("none", "drafter_not_loaded")
    assert [message.WhichOneof("message") for message in drafter.requests] == ["hello"]


async def test_a_strict_mode_that_cannot_run_is_refused() -> None:
    with pytest.raises(Unsupported, match="drafter_not_loaded"):
        await drive([request(PROMPT, 10, mode="mtp", strict=True)], [])
