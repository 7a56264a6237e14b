"""A plan stands for some rounds, and who comes meanwhile fits into it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from services.target.policy.controller import Controller
from services.target.policy.decision import Decision, Offer
from services.target.policy.rules import PolicyRules
from services.target.policy.standing import JOIN, Standing
from tests.target.policy.worlds import World, always, views

MANY = 16


def world(right=lambda mode, key, round: 3, **costs) -> World:
    return World(Controller(PolicyRules()), right, {"ngram": 0.001}, row_s=0.0002, **costs)


def planned(it: World) -> Mapping[int, Decision]:
    """What the drafter does is known, and a plan for all but the last was made just now."""
    it.run(60, count=MANY)
    it.policy.forget(MANY - 1)
    it.round(views(2))
    return it.round(views(MANY - 1))


def begun(count: int = MANY) -> Standing:
    standing = Standing()
    standing.begin(views(count), ["ngram"], settled=True)
    return standing


def test_a_plan_is_good_for_the_more_rounds_the_more_sequences_there_are():
    def rounds(count: int) -> int:
        standing = begun(count)
        return next(done for done in range(100) if standing.joining(views(count), ["ngram"]) is None)

    assert [rounds(count) for count in (1, 3, 8, 64)] == [0, 0, 2, 16]


def test_a_plan_that_tries_something_is_good_for_its_round_only():
    standing = Standing()
    standing.begin(views(MANY), ["ngram"], settled=False)
    assert standing.joining(views(MANY), ["ngram"]) is None


def test_who_comes_or_begins_to_decode_is_told_once():
    standing = begun()
    waiting = [*views(MANY), replace(views(1)[0], key=99, decoding=False)]
    decoding = [*views(MANY), replace(views(1)[0], key=99)]
    assert [view.key for view in standing.joining(waiting, ["ngram"])] == [99]
    assert standing.joining(waiting, ["ngram"]) == []
    assert [view.key for view in standing.joining(decoding, ["ngram"])] == [99]
    assert standing.joining(decoding, ["ngram"]) == []


@pytest.mark.parametrize(
    "changed",
    [
        lambda all: [*all[1:], replace(all[0], hindrances={"ngram": "catching_up"})],
        lambda all: [*all, replace(views(1, strict=True)[0], key=99)],
        lambda all: all[: MANY - MANY // 4 - 1],
        lambda all: [*all, *(replace(all[0], key=key) for key in range(100, 101 + MANY // 4))],
    ],
)
def test_what_cannot_wait_makes_a_new_plan(changed):
    assert begun().joining(changed(views(MANY)), ["ngram"]) is None
    assert begun().joining(views(MANY), ["ngram", "mtp"]) is None


def test_who_joins_drafts_as_the_others_do():
    it = world()
    before, now = planned(it), it.round(views(MANY))
    assert all(now[key] is decision for key, decision in before.items()), "the plan stands"
    assert (now[MANY - 1].mode, now[MANY - 1].because) == ("ngram", "speed")
    assert 1 <= now[MANY - 1].max_draft_tokens <= max(each.max_draft_tokens for each in before.values())
    assert len(it.seen[-1].outcomes) == MANY


def test_who_joins_a_plan_without_drafts_rests_until_the_next_and_that_is_no_switch():
    it = world(always(0))
    before, now = planned(it), it.round(views(MANY))
    assert all(now[key] is decision for key, decision in before.items())
    assert (now[MANY - 1].mode, now[MANY - 1].because, now[MANY - 1].passing) == ("none", JOIN, True)


def test_who_left_is_forgotten_by_the_plan():
    it = world()
    before, now = planned(it), it.round(views(MANY - 3))
    assert set(now) == set(range(MANY - 3))
    assert all(decision is before[key] for key, decision in now.items())
    assert it.policy.cut([Offer(key, 3) for key in now]).lengths == [3] * (MANY - 3)
