"""The totals that a target tells: seconds of drafting and verifying, and why a round of a sequence had no draft."""

from itertools import count, repeat

import pytest

from services.target.encode import load
from services.target.link.link import Patience
from tests.target.harness import HASTY, PATIENT, request, system, truth_of
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(5))


async def told(asked, script=(), *, drafter: bool = True, patience: Patience = PATIENT, **options):
    """The load after `asked` was answered; a second goes by between two looks at the clock."""
    ticks = count()
    scripted = ScriptedDrafter(truth_of([asked]), iter(script), **options) if drafter else None
    model = ScriptedModel()
    async with system(scripted, model=model, patience=patience, clock=lambda: float(next(ticks))) as running:
        await running.answer(asked)
        await running.settled()
        return load(running.rounds, running.link), model


async def test_each_wait_for_drafts_and_each_step_is_timed() -> None:
    now, model = await told(request(PROMPT, 33, max_draft_tokens=7), repeat(("right", 7)))
    assert (now.rounds, now.verify_seconds) == (model.forwards, model.forwards)
    assert (now.turns, now.draft_seconds) == (4, 4)
    assert now.rounds == 1 + 4, "the prompt, and four blocks of eight"
    assert not now.skipped
    assert not now.dropped


async def test_a_step_that_fails_took_its_time_too() -> None:
    async with system(None, clock=iter(map(float, range(1000))).__next__) as running:
        running.model.fail_at = 1
        with pytest.raises(Exception, match="failed"):
            await running.answer(request(PROMPT, 3))
        assert load(running.rounds, running.link).verify_seconds == 1


async def test_who_wants_no_drafts_skips_none() -> None:
    now, _ = await told(request(PROMPT, 9, mode="none"))
    assert (now.turns, now.draft_seconds) == (0, 0)
    assert not now.skipped


async def test_rounds_without_a_drafter_are_counted_by_the_reason_of_the_report() -> None:
    now, _ = await told(request(PROMPT, 9), drafter=False)
    assert now.skipped == {"drafter_not_loaded": 8}, "every round after the prompt's"


async def test_a_drafter_with_nothing_to_propose_is_no_failure() -> None:
    now, _ = await told(request(PROMPT, 9), [("nothing", 0)] * 2)
    assert now.skipped == {"nothing_proposed": 2}


async def test_a_drafter_that_holds_no_more_contexts_is_not_asked() -> None:
    now, _ = await told(request(PROMPT, 9), max_contexts=0)
    assert now.skipped == {"no_context": 7}
    assert now.turns == 0


async def test_turns_that_come_too_late_or_cannot_be_asked_are_told_apart() -> None:
    now, _ = await told(request(PROMPT, 40), repeat(("late", 5)), patience=HASTY)
    assert now.skipped["unanswered"] > 0
    assert set(now.skipped) <= {"unanswered", "busy", "resting", "away", "drafter_not_loaded"}


async def test_what_fits_no_question_is_counted_as_dropped() -> None:
    now, _ = await told(request(PROMPT, 9), [("stale_epoch", 2)])
    assert now.dropped == {"stale": 1}
    assert now.skipped == {"nothing_proposed": 1}


async def test_contexts_at_the_drafter_are_counted_while_they_are_open() -> None:
    asked = request(PROMPT, 33)
    async with system(ScriptedDrafter(truth_of([asked]), iter([]))) as running:
        updates = running.rounds.generate(asked)
        await anext(updates)
        assert load(running.rounds, running.link).contexts == 1
        await updates.aclose()
        await running.settled()
        assert load(running.rounds, running.link).contexts == 0
