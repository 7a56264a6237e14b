"""Tests of the tests: each fault that the exactness suite exists for makes it fail."""

import pytest

from services.engine.sampling import Rules
from services.errors import Internal
from services.target.link import turn
from services.target.link.link import DrafterLink
from tests.target import test_drafter_link, test_losslessness
from tests.target.harness import BOUNDS, request
from tests.target.scripted_model import ScriptedSlot

pytestmark = pytest.mark.anyio

MIXED = [("right", 3), ("wrong", 5)] * 20


async def suite(**sampling: float) -> None:
    asked = [request([i, 2, 3], 30, seed=i, **sampling) for i in range(3)]
    await test_losslessness.run_scenario(asked, MIXED, BOUNDS, {})


async def test_the_suite_passes_without_a_fault() -> None:
    await suite(temperature=0.7, frequency_penalty=2.0)


@pytest.mark.parametrize("kind", ["stale_frontier", "stale_anchor", "stale_epoch"])
async def test_a_proposal_for_another_question_that_is_applied(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "_answers", lambda proposal, asked: True)
    with pytest.raises(AssertionError):
        await test_drafter_link.test_an_answer_to_another_question_is_dropped_and_counted_never_applied(kind)


async def test_a_late_proposal_that_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    held: turn.Drafts = {}
    resolve, draft = turn.Turn.resolve, DrafterLink.draft

    def remembering(answered: turn.Turn, drafts: turn.Drafts) -> None:
        held.update(drafts)
        resolve(answered, drafts)

    async def careless(link: DrafterLink, asks):
        return await draft(link, asks) or dict(held)

    monkeypatch.setattr(turn.Turn, "resolve", remembering)
    monkeypatch.setattr(DrafterLink, "draft", careless)
    with pytest.raises((AssertionError, Internal)):
        await test_drafter_link.test_an_answer_to_another_question_is_dropped_and_counted_never_applied("late")


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
async def test_rules_that_do_not_see_the_drafts_before_their_row(penalty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Rules.fork

    def forgetful(rules: Rules) -> Rules:
        fork = real(rules)
        blind = type(
            "Blind", (Rules,), {"advance": lambda self, token: None, "fork": lambda self: self, "__slots__": ()}
        )
        fork.__class__ = blind
        return fork

    monkeypatch.setattr(Rules, "fork", forgetful)
    with pytest.raises(AssertionError):
        await suite(temperature=0.0, **{penalty: 2.0})


@pytest.mark.parametrize("off", [-1, 1])
async def test_a_frontier_that_is_off_by_one(off: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ScriptedSlot.commit

    def shifted(slot: ScriptedSlot, kept: int) -> None:
        real(slot, min(max(kept + off, 0), len(slot.begun)) if slot.length else kept)

    monkeypatch.setattr(ScriptedSlot, "commit", shifted)
    with pytest.raises((AssertionError, Internal)):
        await suite()
