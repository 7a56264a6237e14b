"""What is verified of the drafts that came: against all other ways, and on a scripted clock."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.policy.allot import Choice, shorten
from services.target.policy.controller import Controller
from services.target.policy.decision import Offer
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules
from services.target.policy.trim import FEW, _line, reach
from tests.target.policy.worlds import World, always, views


@st.composite
def arrived(draw):
    alive, gains = 1.0, []
    for chance in draw(st.lists(st.floats(0.0, 1.0), max_size=4)):
        alive *= chance
        gains.append(alive)
    return Choice("mtp", gains, least=draw(st.integers(0, min(1, len(gains)))))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    choices=st.lists(arrived(), max_size=4),
    times=st.lists(st.floats(0.001, 1.0), min_size=20, max_size=20),
    rows=st.integers(1, 3),
    rate=st.floats(0.0, 100.0),
)
def test_no_other_beginnings_of_the_drafts_are_worth_more(choices, times, rows, rate):
    def worth(lengths):
        tokens = sum(sum(choice.gains[:length]) for choice, length in zip(choices, lengths, strict=True))
        return tokens - rate * times[rows + sum(lengths)]

    lengths = shorten(choices, rows, lambda at: times[int(at)], rate)
    assert all(choice.least <= length for choice, length in zip(choices, lengths, strict=True))
    ways = product(*(range(choice.least, len(choice.gains) + 1) for choice in choices))
    assert worth(lengths) >= max(map(worth, ways)) - 1e-9


@settings(max_examples=100, deadline=None, derandomize=True)
@given(drafts=st.integers(0, 100), rows=st.integers(1, 70), base=st.floats(0.001, 1), row=st.floats(0, 0.1))
def test_a_straight_line_stays_what_it_is(drafts, rows, base, row):
    line = _line(lambda at: base + row * at, rows, drafts)
    for at in range(rows, rows + drafts + 1):
        assert line(at) == pytest.approx(base + row * at)


def test_longer_drafts_are_asked_for_as_far_as_they_are_waited_for_anyway():
    def wait(mode, size, length):
        return 0.01 if mode == "dflash" else 0.001 * length

    modes, planned, most = ["dflash", "mtp", None, "dflash"], [3, 3, 0, 2], [15, 15, 0, 4]
    assert reach(modes, planned, most, wait, 0.1) == [7, 3, 0, 4]
    assert reach(["dflash"] * (FEW + 1), [1] * (FEW + 1), [9] * (FEW + 1), wait, 0.1) == [1] * (FEW + 1)
    assert reach(["dflash"], [3], [0], wait, 0.1) == [3], "who is told nothing asks as planned"


def world(right, says, *, row_s=0.002, **options) -> World:
    return World(Controller(PolicyRules()), right, {"ngram": 0.0001}, row_s=row_s, says=says, **options)


def by_turns(mode, key, round):
    return 6 if round % 3 else 0


def telling(mode, key, round, drafts):
    return ([0.7] if round % 3 else [0.4]) * drafts


def verified(it, rounds=60):
    return [each.outcomes[0].drafted for each in it.seen[-rounds:]]


def test_drafts_that_are_said_to_be_bad_and_are_so_are_not_verified():
    it = world(by_turns, telling)
    it.run(400, mode="ngram")
    late = [(each.outcomes[0], number % 3) for number, each in enumerate(it.seen)][-90:]
    bad = [outcome.drafted for outcome, turn in late if turn == 0 and outcome.asked]
    good = [outcome.drafted for outcome, turn in late if turn and outcome.asked]
    assert sum(bad) / len(bad) < 1
    assert sum(good) / len(good) > 4
    untold = world(by_turns, None)
    untold.run(400, mode="ngram")
    assert it.tokens / it.seconds > 1.02 * untold.tokens / untold.seconds


def test_a_drafter_that_is_always_sure_and_always_wrong_rests():
    it = world(always(0), lambda mode, key, round, drafts: [0.99] * drafts)
    assert {each[0].mode for each in it.run(600, mode="ngram")[-5:]} == {"none"}
    assert it.seconds <= 1.02 * it.tokens * it.base_s


def test_a_drafter_that_is_never_sure_and_always_right_gets_long_drafts():
    it = world(always(15), lambda mode, key, round, drafts: [0.5] * drafts, row_s=0.0005)
    it.run(150, mode="ngram")
    assert sum(length == 15 for length in verified(it)) >= 55


def test_who_says_the_same_of_all_is_treated_as_who_says_nothing():
    def right(mode, key, round):
        return (3, 0, 7, 1, 2)[round % 5]

    told, untold = world(right, lambda mode, key, round, drafts: [0.8] * drafts), world(right, None)
    for it in (told, untold):
        it.run(500, mode="ngram")
    assert told.tokens / told.seconds > 0.99 * untold.tokens / untold.seconds


def test_a_strict_request_has_a_draft_verified_whatever_is_said_of_it():
    it = world(lambda *_: 0, lambda mode, key, round, drafts: [0.01] * drafts)
    it.run(200, mode="ngram", strict=True)
    assert all(each.outcomes[0].drafted >= 1 for each in it.seen)
    assert set(verified(it)) <= {1, 2}


def test_tries_are_verified_whole():
    it = world(by_turns, telling)
    rounds = it.run(400, mode="ngram")
    tried = [seen.outcomes[0] for seen, each in zip(it.seen, rounds, strict=True) if each[0].because == "probe"]
    assert all(each.cut == 0 for each in tried)


def test_confidences_that_stay_away_cost_only_what_was_asked_for_in_the_hope_of_them():
    it = world(by_turns, telling, row_s=0.001)
    it.run(200, mode="ngram")
    it.says = None
    decisions = it.policy.decide(views(1, mode="ngram"), it.drafters).decisions
    planned = it.policy._chosen.allotment.lengths[0]
    came = decisions[0].max_draft_tokens
    assert came > planned > 0, "more was asked for than is worth it on average"
    assert list(it.policy.cut([Offer(0, came)]).lengths) == [planned]


def test_drawn_tokens_are_calibrated_apart():
    it = world(by_turns, telling)
    it.run(200, mode="ngram")
    trim = it.policy._trim
    assert trim.informed("ngram", greedy=True)
    assert not trim.informed("ngram", greedy=False)


def test_what_is_known_of_a_drafter_goes_with_it():
    it = world(by_turns, telling)
    it.run(200, mode="ngram")
    it.draft_s = {}
    it.run(1, mode="ngram")
    assert not it.policy._trim.informed("ngram", greedy=True)


@pytest.mark.parametrize("count", [1, 5])
def test_the_same_rounds_are_cut_the_same(count):
    def told():
        it = world(lambda mode, key, round: (round * 7 + key) % 6, telling)
        it.run(200, count)
        return [each.outcomes for each in it.seen]

    assert told() == told()


def test_the_gate_cuts_nothing():
    it = World(GatePolicy(PolicyRules()), by_turns, {"ngram": 0.001}, says=telling)
    it.run(100)
    assert all(outcome.cut == 0 for each in it.seen for outcome in each.outcomes)


def test_the_time_of_a_round_is_told_anew_for_what_is_left_of_it():
    it = world(by_turns, telling)
    it.run(300, mode="ngram")
    for _ in range(6):
        it.policy.decide(views(1, mode="ngram"), it.drafters)
        cut = it.policy.cut([Offer(0, 3, (0.4, 0.4, 0.4))])
        if cut.seconds is not None:
            assert cut.seconds == pytest.approx(0.0001 + it.forward_s(1 + cut.lengths[0]), rel=0.1)
            return
    raise AssertionError("no round was planned")
