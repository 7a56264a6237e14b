"""Who runs when: bounded queue, reserved rows, no starvation, and everything freed within one round."""

import asyncio
from itertools import repeat

import pytest

from services.errors import Internal, Overloaded, Unavailable
from services.target.cut import Cutter
from services.target.scheduler import Bounds
from tests.target.harness import BOUNDS, plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import DFLASH, DFLASH2, MTP, NGRAM, ScriptedDrafter
from tests.target.scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio


def small(**changes: int) -> Bounds:
    return Bounds(**({"max_sequences": 16, "max_waiting": 64, "prefill_chunk": 8, "round_tokens": 64} | changes))


async def test_a_full_queue_refuses_and_says_so() -> None:
    async with system(None, bounds=small(max_waiting=2, max_sequences=1)) as running:
        talking = running.rounds.generate(request([1], 200))
        await anext(talking)
        waiting = [asyncio.create_task(running.answer(request([2], 3))) for _ in range(2)]
        await asyncio.sleep(0)
        refused = running.rounds.generate(request([3], 3))
        with pytest.raises(Overloaded, match="waiting"):
            await anext(refused)
        await talking.aclose()
        for task in waiting:
            assert tokens(await task) == plain_answer(request([2], 3))


async def test_requests_that_do_not_fit_wait_and_are_served() -> None:
    asked = [request([index] * 10, 30) for index in range(8)]

    model = ScriptedModel(cache_rows=80)
    async with system(None, model=model) as running:
        answers = await asyncio.gather(*map(running.answer, asked))
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]
        await running.settled()


async def test_a_large_request_is_not_passed_over_for_ever() -> None:
    model, order = ScriptedModel(cache_rows=60), []
    async with system(None, model=model, bounds=small(max_waiting=200)) as running:

        async def ask(name: str, rows: int) -> None:
            await running.answer(request([1] * 5, rows - 4))
            order.append(name)

        small_ones = [asyncio.create_task(ask("small", 20)) for _ in range(3)]
        large = asyncio.create_task(ask("large", 60))
        more = [asyncio.create_task(ask("small", 20)) for _ in range(60)]
        await asyncio.gather(large, *small_ones, *more)

    assert order.index("large") < 30


async def test_a_long_prompt_does_not_stall_the_others() -> None:
    model = ScriptedModel(context=400)
    async with system(None, model=model, bounds=small(prefill_chunk=8, round_tokens=16)) as running:
        talking = running.rounds.generate(request([1, 2], 60))
        await anext(talking)
        long = asyncio.create_task(running.answer(request([3] * 200, 2)))
        rounds = 0
        async for _ in talking:
            rounds += 1
        assert rounds > 20, "tokens kept coming while the prompt was read"
        await long
    assert max(model.widths) <= 16


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_a_reader_that_leaves_frees_everything_within_a_round(after: int) -> None:
    asked = request([5, 6, 7], 200)
    drafter = ScriptedDrafter(truth_of([asked]), repeat(("right", 1)))
    async with system(drafter) as running:
        await running.answer(asked, leave_after=after)
        forwards = running.model.forwards
        await running.settled()
        assert running.model.forwards <= forwards + 1
        assert running.link.open_contexts == 0


async def test_a_request_cancelled_while_it_waits_never_runs() -> None:
    async with system(None, bounds=small(max_sequences=1)) as running:
        first = asyncio.create_task(running.answer(request([1], 40)))
        waiting = asyncio.create_task(running.answer(request([2], 40)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert tokens(await first) == plain_answer(request([1], 40))
        await running.settled()


async def test_a_failing_step_fails_its_sequences_cleanly_and_serves_the_next() -> None:
    model = ScriptedModel()
    model.fail_at = 4
    async with system(None, model=model) as running:
        with pytest.raises(Internal):
            await running.answer(request([1, 2, 3], 40))
        await running.settled()
        assert tokens(await running.answer(request([1, 2, 3], 40))) == plain_answer(request([1, 2, 3], 40))


async def test_a_text_that_cannot_be_made_fails_the_step_and_serves_the_next(monkeypatch) -> None:
    """The bug shows after the model was moved, and while another sequence shares the step."""
    cut, cuts = Cutter.cut, []

    def fails(cutter, tokens):
        cuts.append(cutter)
        if len(cuts) == 5:
            raise ZeroDivisionError
        return cut(cutter, tokens)

    monkeypatch.setattr(Cutter, "cut", fails)
    asked = [request([i, 2, 3], 40) for i in range(2)]
    drafter = ScriptedDrafter(truth_of(asked), repeat(("right", 3)))
    async with system(drafter) as running:
        ends = await asyncio.gather(*map(running.answer, asked), return_exceptions=True)
        assert [type(end) for end in ends] == [Internal, Internal]
        await running.settled()
        assert running.link.open_contexts == 0
        answers = await asyncio.gather(*map(running.answer, asked))
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]


async def test_a_reader_that_takes_its_time_holds_nobody_up_and_gets_the_rest_at_once() -> None:
    slow, quick = request([1, 2], 30), request([3, 4], 60)
    async with system(None) as running:
        stream = running.rounds.generate(slow)
        updates = [await anext(stream)]
        assert tokens(await running.answer(quick)) == plain_answer(quick)
        updates += [update async for update in stream]
    assert tokens(updates) == plain_answer(slow)
    assert len(updates) <= 3, "what waited is one update"
    assert updates[-1].report.counters.generated == 30


async def test_stopping_the_loop_fails_what_still_runs() -> None:
    async with system(None) as running:
        stream = running.rounds.generate(request([1], 200))
        await anext(stream)
    with pytest.raises(Unavailable):
        async for _ in stream:
            pass


async def test_five_hundred_requests_with_every_ending_in_every_mode_leave_nothing_behind() -> None:
    modes = ("auto", "none", "ngram", "mtp", "dflash", "dflash2")
    asked = [
        request([i % 32, i // 32], 1 + i % 9, stop_ids=[i % 5] if i % 4 else [], mode=modes[i % len(modes)])
        for i in range(500)
    ]
    drafter = ScriptedDrafter(lambda ids: [1, 2, 3], repeat(("right", 3)), modes=(NGRAM, MTP, DFLASH, DFLASH2))
    async with system(drafter, bounds=small(max_waiting=500)) as running:
        leaving = [i % 2 if i % 7 == 0 else None for i in range(500)]
        await asyncio.gather(
            *(running.answer(each, leave_after=after) for each, after in zip(asked, leaving, strict=True))
        )
        await running.settled()
        assert running.link.open_contexts == 0
        assert running.link.taps.retained_bytes == 0
        await drafter.all_closed()
    assert drafter.faults == []


async def test_mixed_draft_lengths_and_exits_never_move_another_sequence() -> None:
    asked = [
        request([i, i + 1], 5 + 3 * i, max_draft_tokens=1 + i, stop_ids=[i], temperature=1.0, seed=i) for i in range(12)
    ]

    drafter = ScriptedDrafter(truth_of(asked), repeat(("right", 15)))
    async with system(drafter, bounds=BOUNDS) as running:
        answers = await asyncio.gather(*map(running.answer, asked))
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]
