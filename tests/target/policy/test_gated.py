"""The policy that judges each sequence by itself, on a scripted clock."""

from services.target.policy.gate import GateRules
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules
from tests.target.policy.worlds import World, always


def world(right, draft_s, *, rules=None, **costs) -> World:
    return World(GatePolicy(rules or PolicyRules()), right, draft_s, **costs)


def test_what_wins_goes_on_and_is_compared_with_plain_decoding_now_and_then():
    rounds = world(always(7), {"ngram": 0.001}).run(200)
    reasons = [each[0].because for each in rounds]
    assert reasons[:2] == ["calibrate", "calibrate"]
    assert 2 <= reasons.count("refresh") <= 4
    assert rounds[-1][0].mode in ("ngram", "none")


def test_what_loses_rests_and_probes_cost_no_more_than_their_share():
    it = world(always(0), {"ngram": 0.01}, row_s=0.001)
    rounds = it.run(4000, mode="ngram")
    assert (rounds[-1][0].mode, rounds[-1][0].reason) == ("none", "gate")
    plain = it.tokens * it.base_s
    assert it.seconds <= 1.02 * plain
    free = world(always(0), {"ngram": 0.01}, row_s=0.001, rules=PolicyRules(probe_share=1.0))
    free.run(4000, mode="ngram")
    assert free.seconds > it.seconds, "the share is what bounds them"


def test_the_floor_of_a_drafter_that_loses_is_mtp_where_that_wins():
    it = world(lambda mode, key, round: 3 if mode == "mtp" else 0, {"dflash": 0.004, "mtp": 0.001})
    assert it.run(200)[-1][0].mode == "mtp"


def test_strict_is_never_rested_and_hardly_ever_right_rests_for_good():
    strict = world(always(0), {"ngram": 0.05}).run(200, mode="ngram", strict=True)
    assert {each[0].mode for each in strict} == {"ngram"}
    rules = PolicyRules(gate=GateRules(grace=10**6))  # the gate judges nothing
    rounds = world(always(0), {"ngram": 0.0}, rules=rules).run(400, mode="ngram")
    assert (rounds[-1][0].mode, rounds[-1][0].reason) == ("none", "acceptance")
