"""Whatever a policy decides, on whatever clock, the tokens are those of plain decoding."""

import random
from dataclasses import replace
from itertools import accumulate, count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.target.encode import load
from services.target.policies import policy
from services.target.policy.bands import Band
from services.target.policy.decision import Cut
from services.target.policy.gate import GateRules
from services.target.policy.rules import PolicyRules
from tests.target.always import Always
from tests.target.harness import BOUNDS, plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import MTP, NGRAM, ScriptedDrafter
from tests.target.scripted_model import ScriptedModel
from tests.target.test_losslessness import bounds, offers, requests, run_scenario, scripts

pytestmark = pytest.mark.anyio

MODES = ("dflash2", "dflash", "mtp", "ngram")
border = st.integers(1, 60)
rules = st.builds(
    PolicyRules,
    bands=st.builds(
        lambda at, first, second: (Band(0, at, tuple(first)), Band(at, None, tuple(second))),
        border,
        st.permutations(MODES),
        st.permutations(MODES[1:]),
    ),
    hysteresis=st.sampled_from([0, 3]),
    probe_share=st.sampled_from([0.0, 0.01, 0.5]),
    acceptance_floor=st.sampled_from([0.05, 0.9]),
    acceptance_drafts=st.sampled_from([1, 128]),
    gate=st.builds(
        GateRules, grace=st.integers(0, 3), first=st.integers(1, 4), most=st.just(8), refresh=st.integers(1, 8)
    ),
)


def wild_clock(seed: int):
    """A clock whose steps differ by a factor of a thousand: every decision may come out either way."""
    luck, now = random.Random(seed), 0.0

    def look() -> float:
        nonlocal now
        now += 10 ** luck.uniform(-4, -1)
        return now

    return look


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(requests(), min_size=1, max_size=5),
    script=scripts,
    limits=bounds,
    leaving=st.dictionaries(st.integers(0, 4), st.integers(0, 6), max_size=2),
    offer=offers,
    name=st.sampled_from(["controller", "controller", "gate"]),
    rules=rules,
    seed=st.integers(0, 2**32),
)
async def test_no_policy_can_change_the_answer(asked, script, limits, leaving, offer, name, rules, seed):
    steered = {"policy": policy(name, rules), "rules": rules, "clock": wild_clock(seed)}
    await run_scenario(asked, script, limits, leaving, offer, confidence=any_confidence(seed), **steered)


def any_confidence(seed: int):
    """Mostly some share for each draft; sometimes none, too few, too many, or what is no share."""
    luck = random.Random(seed)

    def said(drafts: int) -> list[float]:
        count = max(drafts + luck.choice([0, 0, 0, 0, -1, 1]), 0)
        odd = luck.choice([float("nan"), float("inf"), -1.0, 2.0])
        return [luck.random() if luck.random() < 0.97 else odd for _ in range(luck.choice([count, count, count, 0]))]

    return said


class Slashing(Always):
    """Cuts drafts anywhere, and says what no policy should."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.luck = random.Random(seed)
        self.cuts = 0

    def cut(self, offers) -> Cut:
        lengths = [self.luck.randint(-2, offer.came + 2) for offer in offers]
        self.cuts += sum(length < offer.came for length, offer in zip(lengths, offers, strict=True))
        return Cut(lengths)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(requests(), min_size=1, max_size=5),
    script=scripts,
    limits=bounds,
    leaving=st.dictionaries(st.integers(0, 4), st.integers(0, 6), max_size=2),
    offer=offers,
    seed=st.integers(0, 2**32),
)
async def test_no_cut_can_change_the_answer(asked, script, limits, leaving, offer, seed):
    await run_scenario(asked, script, limits, leaving, offer, policy=Slashing(seed))


async def test_what_came_what_was_verified_and_what_was_cut_are_told_apart():
    asked = request(range(8), 60, mode="ngram", max_draft_tokens=5)
    asked = replace(asked, speculation=replace(asked.speculation, explain=True))
    drafter, slashing = ScriptedDrafter(truth_of([asked]), iter(())), Slashing(5)
    async with system(drafter, policy=slashing) as running:
        updates = await running.answer(asked)
        told = load(running.rounds, running.link)
    assert tokens(updates) == plain_answer(asked)
    recorded = updates[-1].report.recorded
    assert slashing.cuts > 5
    assert all(0 <= each.accepted == each.drafted <= each.came == each.asked for each in recorded)
    assert told.cut == {"ngram": sum(each.came - each.drafted for each in recorded)}
    assert told.skipped["cut"] == sum(each.came > each.drafted == 0 for each in recorded) > 0
    assert sum(each.drafted for each in told.drafters) == sum(each.drafted for each in recorded)


async def test_the_controller_verifies_less_where_drafts_are_said_to_be_bad():
    """Every other draft is wrong from its first token on, and says so."""
    asked = request(range(8), 400, mode="ngram")
    asked = replace(asked, speculation=replace(asked.speculation, explain=True))
    script = [("right", 15), ("wrong_first", 15)] * 200
    drafter = ScriptedDrafter(truth_of([asked]), iter(script))
    drafter.confidence = lambda drafts: [0.9 if drafter.turns % 2 else 0.3] * drafts
    seconds, rows = 0.0, []

    def by_rows() -> float:
        """Drafts take no time, and a forward that of its rows; it is looked at before and after each."""
        nonlocal seconds
        seconds += sum(rows)
        rows.clear()
        return seconds

    model = ScriptedModel(cache_rows=600)
    forward = model.forward
    model.forward = lambda blocks, **wanted: (
        rows.append(1.0 + 0.2 * sum(len(each.ids) for each in blocks)),
        forward(blocks, **wanted),
    )[1]
    rules = PolicyRules()
    async with system(drafter, model=model, policy=policy("controller", rules), rules=rules, clock=by_rows) as running:
        updates = await running.answer(asked)
    assert tokens(updates) == plain_answer(asked)
    late = [each for each in updates[-1].report.recorded[-30:] if each.came and each.because == "speed"]
    bad = [each.drafted for each in late if not each.accepted]
    good = [each.accepted for each in late if each.accepted]
    assert good
    assert bad
    assert sum(bad) / len(bad) < 2 < sum(good) / len(good)


async def steered_answer(asked, *, modes, name="controller", rules=None, clock=None):
    rules = rules or PolicyRules()
    ticks = count()
    drafter = ScriptedDrafter(truth_of([asked]), iter(()), modes=modes)
    async with system(
        drafter, bounds=BOUNDS, policy=policy(name, rules), rules=rules, clock=clock or (lambda: float(next(ticks)))
    ) as running:
        return await running.answer(asked), running.rounds.steering


@pytest.mark.parametrize("bands", [("ngram", "mtp"), ("mtp", "ngram")])
async def test_a_request_that_crosses_a_border_changes_its_drafter_once_and_no_draft_is_lost(bands):
    first, second = bands
    asked = request(range(8), 90, mode="auto", max_draft_tokens=7)
    rules = PolicyRules(bands=(Band(0, 50, (first,)), Band(50, None, (second,))), hysteresis=0)
    asked = replace(asked, speculation=replace(asked.speculation, explain=True))
    updates, _ = await steered_answer(asked, modes=(NGRAM, MTP), rules=rules)
    assert tokens(updates) == plain_answer(asked)
    report = updates[-1].report
    assert report.resolved.mode == first
    [switch] = report.counters.switches
    assert (switch.origin, switch.to, switch.reason) == (first, second, "context")
    around = [each for each in report.recorded if abs(each.at - switch.at) <= 24]
    assert {each.mode for each in around} == {first, second}
    # The scripted drafter is always right, so a context with a hole in it would show as a draft that is not kept.
    assert all(each.accepted == each.drafted == each.asked > 0 for each in around)


async def test_a_record_has_every_round_with_what_was_expected_and_what_it_took():
    asked = request(range(8), 40, mode="ngram")
    asked = replace(asked, speculation=replace(asked.speculation, explain=True))
    updates, steering = await steered_answer(asked, modes=(NGRAM,))
    recorded = updates[-1].report.recorded
    kept = accumulate((1 + each.accepted for each in recorded), initial=1)
    assert [each.at for each in recorded] == list(kept)[:-1]
    assert [each.because for each in recorded[:2]] == ["calibrate", "calibrate"]
    assert all(each.predicted_s for each in recorded[2:])
    assert all(each.measured_s in (1.0, 2.0) for each in recorded), "a second for the drafts, one for the forward"
    assert all(not update.report.recorded for update in updates[:-1])
    assert steering.totals.because["speed"] > 0
    assert steering.totals.measured_s > 0


async def test_nothing_is_recorded_for_who_does_not_ask():
    updates, _ = await steered_answer(request(range(8), 40), modes=(NGRAM,))
    assert not updates[-1].report.recorded


@pytest.mark.parametrize("name", ["controller", "gate"])
async def test_drafting_that_loses_rests_and_strict_does_not(name):
    def slow_drafts():
        now, looks = 0.0, 0

        def look() -> float:
            nonlocal now, looks
            now, looks = now + 1.0, looks + 1
            return now

        return look

    never = request(range(8), 120, mode="ngram")
    drafter = ScriptedDrafter(lambda history: [0] * 15, iter(()))
    answers = {}
    for strict in (False, True):
        asked = replace(never, speculation=replace(never.speculation, strict=strict))
        rules = PolicyRules(acceptance_floor=0.0)
        async with system(drafter, policy=policy(name, rules), rules=rules, clock=slow_drafts()) as running:
            answers[strict] = await running.answer(asked)
        assert tokens(answers[strict]) == plain_answer(asked)
    [first, *_] = answers[False][-1].report.counters.switches
    assert (first.origin, first.to, first.reason) == ("ngram", "none", "gate")
    assert answers[False][-1].report.counters.total("rounds") < 40
    assert not answers[True][-1].report.counters.switches
    assert answers[True][-1].report.counters.total("rounds") > 80
