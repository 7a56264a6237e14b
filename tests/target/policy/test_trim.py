"""What is verified of the drafts that came: against all other ways, and on a scripted clock."""

from itertools import accumulate, product
from operator import mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.policy.acceptance import Acceptance, Prior
from services.target.policy.controller import Controller
from services.target.policy.decision import Offer, Outcome
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules
from services.target.policy.trim import FEW, Arrived, Trim, reach, row_s
from tests.target.policy.worlds import World, always, views


def taught() -> Trim:
    """Two drafters: the surer one of them is the worse."""
    trim = Trim()
    for mode, stated, won in (("mtp", 0.4, 3), ("mtp", 0.9, 2), ("ngram", 0.9, 1), ("ngram", 0.97, 3)) * 20:
        known = Acceptance(Prior())
        trim.learn(Outcome(1, mode, 4, 4, won, won + 1, 0, [stated, 0.8, stated, 0.6]), known, greedy=True)
    return trim


said = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    offered=st.lists(st.tuples(st.sampled_from(["mtp", "ngram"]), said, st.integers(0, 1)), max_size=4),
    base=st.floats(0.001, 0.1),
    row=st.floats(0.0, 0.01),
    rate=st.floats(0.0, 200.0),
)
def test_no_other_beginnings_of_the_drafts_are_worth_more(offered, base, row, rate):
    trim, rows = taught(), len(offered)
    arrived = [
        Arrived(Offer(key, len(each), each), mode, True, 1, least, Acceptance(Prior()))
        for key, (mode, each, least) in enumerate(offered)
    ]
    chances = [trim._calibrations[each.mode, True].chances(each.offer.confidences) for each in arrived]

    def worth(lengths):
        tokens = sum(sum(accumulate(each[:length], mul)) for each, length in zip(chances, lengths, strict=True))
        return tokens - rate * (base + row * (rows + sum(lengths)))

    lengths = trim.lengths(arrived, rows, lambda at: base + row * at, rate)
    assert all(each.least <= length for each, length in zip(arrived, lengths, strict=True))
    ways = product(*(range(each.least, each.offer.came + 1) for each in arrived))
    negligible = 0.01 * sum(each.offer.came for each in arrived)  # drafts that are hardly ever right are not looked at
    allowed = negligible if rate * row < 0.01 else 1e-9
    assert worth(lengths) >= max(map(worth, ways)) - allowed


def test_the_price_of_a_row_is_that_of_all_that_came_and_not_of_an_odd_one():
    times = {1: 0.010, 2: 0.019, 3: 0.0, 5: 0.014}
    assert row_s(lambda at: times[int(at)], 1, 4) == pytest.approx(0.001)
    assert row_s(lambda at: times[int(at)], 1, 0) == 0.0


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
