"""What is measured of rounds, and what is told between the measured points."""

import pytest

from services.target.policy.budget import Budget
from services.target.policy.curve import Curve
from services.target.policy.decision import Outcome, Seen
from services.target.policy.timings import Timings


def seen(verify_s, *, drafted=0, draft_s=0.0, context=500, mixed=False, answered=True, mode="mtp"):
    outcome = Outcome(1, mode if drafted else "none", drafted, drafted, 0, 1)
    return Seen([outcome], context, draft_s, verify_s, mixed, answered and drafted > 0)


def told(timings: Timings, rows: int, context: int = 500) -> float:
    return timings.verify(context).at(rows)


def test_the_first_sample_stands_in_until_the_second_and_then_they_are_averaged():
    curve = Curve()
    for seconds, known in ((9.0, 9.0), (1.0, 1.0), (2.0, 1.3)):
        curve.record(4, seconds)
        assert curve.at(4) == pytest.approx(known)


def test_lines_lie_between_the_points_and_go_on_behind_the_last():
    curve = Curve()
    for x, seconds in ((1, 1.0), (5, 3.0)):
        curve.record(x, seconds)
        curve.record(x, seconds)
    assert [curve.at(x) for x in (1, 2, 3, 5, 9)] == pytest.approx([1.0, 1.5, 2.0, 3.0, 5.0])


def test_one_point_is_believed_to_rise_a_little():
    curve = Curve()
    curve.record(2, 1.0)
    assert curve.at(2) < curve.at(8) < 1.5


def test_another_context_begins_with_what_is_known_of_the_nearest():
    timings = Timings()
    for _ in range(3):
        timings.record(seen(1.0, context=500))
    assert told(timings, 1, context=4000) == pytest.approx(1.0)
    timings.record(seen(1.2, context=4000))
    assert told(timings, 1, context=4000) == pytest.approx(1.2)
    assert told(timings, 1, context=500) == pytest.approx(1.0)


def test_a_jump_of_the_clock_scales_all_times_by_the_same():
    timings = Timings()
    for _ in range(5):
        timings.record(seen(1.0))
        timings.record(seen(1.6, drafted=4, draft_s=0.2))
    for _ in range(3):
        timings.record(seen(6.4, drafted=4, draft_s=0.8))
    assert told(timings, 5) == pytest.approx(6.4)
    assert told(timings, 1) == pytest.approx(4.0)
    assert timings.draft("mtp", 1, 4) == pytest.approx(0.8)


def test_two_odd_rounds_teach_nothing():
    timings = Timings()
    for seconds in (1.0, 1.0, 1.0, 9.0, 9.0, 1.0, 9.0):
        timings.record(seen(seconds))
    assert told(timings, 1) == pytest.approx(1.0)


def test_a_turn_that_was_not_answered_teaches_nothing_of_drafts():
    timings = Timings()
    timings.record(seen(1.0, drafted=4, draft_s=30.0, answered=False))
    assert timings.draft("mtp", 1, 4) == 0.0
    assert not timings.known("mtp")


def test_a_budget_is_a_part_of_what_was_spent_and_of_what_is_ahead():
    budget = Budget(0.01)
    assert budget.room(100, 2.0) == pytest.approx(2.0)
    assert budget.room(10**6, 2.0) == pytest.approx(0.01 * 512 * 2)
    budget.spend(50.0)
    budget.spend(10.0, lost_s=1.5)
    assert budget.room(0, 2.0) == pytest.approx(0.6 - 1.5)
    budget.spend(10.0, lost_s=-5.0)
    assert budget.room(0, 2.0) == pytest.approx(0.7 - 1.5), "luck is no credit"
