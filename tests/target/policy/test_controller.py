"""What the controller chooses, on a scripted clock."""

import random

import pytest

from services.target.policy.acceptance import Prior
from services.target.policy.bands import Band
from services.target.policy.budget import Budget
from services.target.policy.controller import Controller
from services.target.policy.decision import View
from services.target.policy.rules import PolicyRules
from services.target.policy.steered import Steered
from services.target.request import Speculation
from tests.target.policy.worlds import World, always, views


def world(right, draft_s, *, rules=None, **costs) -> World:
    return World(Controller(rules or PolicyRules()), right, draft_s, **costs)


def modes(rounds, key=0):
    return [decisions[key].mode for decisions in rounds]


def test_the_first_rounds_of_all_are_plain_to_know_what_that_takes():
    it = world(always(7), {"ngram": 0.001})
    rounds = it.run(6)
    assert modes(rounds) == ["none", "none", "ngram", "ngram", "ngram", "ngram"]
    assert all(each[0].passing and each[0].because == "calibrate" for each in rounds[:2])


def test_drafts_that_are_right_grow_as_long_as_may_be():
    rounds = world(always(15), {"ngram": 0.001}).run(60)
    assert rounds[-1][0].max_draft_tokens == 15


def test_drafts_that_are_wrong_rest_and_the_reason_is_the_gate():
    it = world(always(0), {"mtp": 0.005}, row_s=0.001)
    rounds = it.run(600, mode="mtp")
    assert [(each[0].mode, each[0].reason) for each in rounds[-5:]] == [("none", "gate")] * 5
    assert it.seconds <= 1.02 * it.tokens * it.base_s


def test_a_strict_request_never_rests():
    rounds = world(always(0), {"mtp": 0.05}).run(300, mode="mtp", strict=True)
    assert set(modes(rounds)) == {"mtp"}
    assert all(each[0].max_draft_tokens >= 1 for each in rounds)


def test_drafts_that_are_hardly_ever_right_rest_for_good():
    it = world(always(0), {"ngram": 0.0})  # they cost nothing at all, so that speed has nothing against them
    rounds = it.run(1500, mode="ngram")
    assert (rounds[-1][0].mode, rounds[-1][0].reason) == ("none", "acceptance")
    assert sum(each[0].max_draft_tokens > 0 for each in rounds) == 128, "of a draft only the first was tried"
    assert rounds[-600:] == [rounds[-1]] * 600, "and it is not tried again"


@pytest.mark.parametrize(("every", "hopeless"), [(40, True), (10, False)])
def test_drafts_behind_a_wrong_one_do_not_count_against_a_drafter(every, hopeless):
    state, priors, rules = Steered(Budget(0.01)), {"ngram": Prior()}, PolicyRules()
    for round in range(1, 101):
        state.of("ngram", priors).record(15, 15, int(round % every == 0))
        assert not state.hopeless("ngram", rules), "of 15 drafts one had a chance, or two"
    for _ in range(40):
        state.of("ngram", priors).record(15, 15, 0)
    assert state.hopeless("ngram", rules) is hopeless


def test_the_drafter_that_is_faster_is_used_whichever_is_liked_better():
    right = {"dflash": 2, "mtp": 5}
    it = world(lambda mode, key, round: right[mode], {"dflash": 0.004, "mtp": 0.001})
    assert modes(it.run(200))[-20:].count("mtp") >= 19


def test_a_sequence_that_would_win_alone_rests_for_load():
    it = world(always(1), {"ngram": 0.0005}, base_s=0.01, row_s=0.0)
    it.run(60)
    it.forward_s = lambda rows: 0.01 if rows <= 8 else 0.01 * rows / 8
    last = it.run(80, count=8)[-1]
    assert {(each.mode, each.reason) for each in last.values()} == {("none", "load")}


def test_plain_time_is_looked_at_again_where_it_is_close():
    it = world(lambda mode, key, round: 1, {"ngram": 0.001}, row_s=0.0065)  # 1.14 times as fast
    rounds = it.run(200)
    refreshed = [each[0] for each in rounds if each[0].because == "refresh"]
    assert refreshed
    assert all(each.passing for each in refreshed)
    assert it.seconds <= 1.02 * it.tokens * (0.0175 / 2) + 4 * 0.0175


def test_a_clock_that_runs_four_times_slower_changes_nothing_that_is_decided():
    it = world(always(4), {"mtp": 0.002}, row_s=0.0002)
    before = it.run(100)[-1][0].max_draft_tokens
    it.base_s, it.row_s, it.draft_s = 0.04, 0.0008, {"mtp": 0.008}
    after = it.run(20)
    assert modes(after).count("mtp") >= 18
    assert abs(after[-1][0].max_draft_tokens - before) <= 1


def test_one_hiccup_is_left_out():
    it = world(always(4), {"mtp": 0.002})
    it.run(100)
    it.base_s = 0.5
    it.run(1)
    it.base_s = 0.01
    it.run(1)
    assert it.plans[-1].seconds < 0.013


def test_rounds_beside_a_prompt_teach_nothing_of_time():
    it = world(always(4), {"mtp": 0.002})
    it.run(100)
    it.base_s = 5.0
    for _ in range(10):
        it.round(views(1), mixed=True)
    assert it.plans[-1].seconds < 0.013


def test_the_band_of_the_context_is_what_may_draft():
    bands = (Band(0, 100, ("ngram",)), Band(100, None, ("mtp",)))
    it = world(always(5), {"ngram": 0.001, "mtp": 0.001}, rules=PolicyRules(bands=bands, hysteresis=10))
    it.run(10, context=50)
    seen = {context: it.round(views(1, context))[0].mode for context in (99, 105, 109, 110, 500)}
    assert seen == {99: "ngram", 105: "ngram", 109: "ngram", 110: "mtp", 500: "mtp"}


def test_a_requests_own_bands_go_first():
    it = world(always(5), {"ngram": 0.001, "mtp": 0.001})
    it.run(10)
    view = View(9, Speculation(bands=(Band(0, None, ("ngram",)),)), 500, 100)
    assert [it.round([view])[9].mode for _ in range(40)] == ["ngram"] * 40


def test_a_drafter_with_nothing_to_say_is_asked_as_long_as_asking_is_cheap():
    policy = Controller(PolicyRules())
    it = World(policy, always(0), {"ngram": 0.00005})
    it.run(4)
    silent = it.policy.record

    def nothing_came(seen):
        from dataclasses import replace

        silent(replace(seen, outcomes=[replace(each, drafted=0, accepted=0, kept=1) for each in seen.outcomes]))

    policy.record = nothing_came
    assert modes(it.run(200)).count("ngram") > 100


@pytest.mark.parametrize("count", [1, 3, 16])
def test_the_same_rounds_are_decided_the_same(count):
    def told():
        luck = random.Random(7)
        it = world(lambda mode, key, round: luck.randrange(6), {"mtp": 0.002, "ngram": 0.0005}, row_s=0.0004)
        return [tuple(sorted((key, str(each)) for key, each in decisions.items())) for decisions in it.run(150, count)]

    assert told() == told()


def test_a_sequence_that_ended_is_forgotten():
    it = world(always(3), {"mtp": 0.001})
    it.run(10, count=4)
    for key in range(4):
        it.policy.forget(key)
    assert not it.policy._states


def short_requests(it, count, first, rounds=48):
    """One after the other; for each, whether it drafted."""
    drafted = []
    for key in range(first, first + count):
        modes = set()
        for left in range(rounds, 1, -1):
            modes |= {each.mode for each in it.round([View(key, Speculation(mode="ngram"), 100, left)]).values()}
        it.policy.forget(key)
        drafted.append("ngram" in modes)
    return drafted


def test_a_drafter_that_was_slow_for_a_while_is_tried_again_by_requests_too_short_to_afford_it():
    it = world(always(5), {"ngram": 0.001})
    it.run(4)
    it.draft_s = {"ngram": 2.0}
    short_requests(it, 20, 100)
    it.draft_s = {"ngram": 0.001}
    assert all(short_requests(it, 120, 200)[-10:])


def test_a_drafter_that_was_unlucky_for_a_while_is_tried_again_by_requests_too_short_to_afford_it():
    it = world(always(0), {"ngram": 0.02})
    it.run(4)
    seconds, tokens = it.seconds, it.tokens
    assert not all(short_requests(it, 100, 100)), "it is given up"
    assert it.seconds - seconds <= 1.01 * (it.tokens - tokens) * it.base_s
    it.right = always(5)
    assert all(short_requests(it, 60, 200)[-10:])


def test_a_drafter_that_comes_back_is_new():
    it = world(always(0), {"mtp": 0.05})
    assert set(modes(it.run(200, mode="mtp"))[-20:]) == {"none"}
    it.draft_s = {}
    it.run(2, mode="mtp")
    it.right, it.draft_s = always(5), {"mtp": 0.001}
    it.policy.forget(0)
    assert modes(it.run(40, mode="mtp"))[-20:] == ["mtp"] * 20
