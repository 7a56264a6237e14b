"""The gate against a model of it that keeps every ratio and computes nothing cleverly."""

from fractions import Fraction
from itertools import takewhile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from services.target.policy.gate import Gate, GateRules, State, Wish
from services.target.policy.length import Length

RULES = GateRules(grace=2, first=3, most=12, refresh=4)
ratios = st.sampled_from([0.26, 0.51, 0.77, 0.9, 1.0, 1.27, 1.5, 4.0])  # no mean of these is 1 but for rounding


class PlainModel:
    """`judged` holds the ratios since the mean began anew, None for a refresh; all else is worked out from it."""

    def __init__(self) -> None:
        self.state = State.DRAFTING
        self.unjudged = RULES.grace
        self.judged: list[float | None] = []
        self.floor_rounds = self.lost_probes = 0

    @property
    def interval(self) -> int:
        return min(RULES.first * 2**self.lost_probes, RULES.most)

    @property
    def mean(self) -> Fraction:
        mean = Fraction(2)
        for ratio in self.judged:
            if ratio is not None:
                mean = Fraction(6, 10) * mean + Fraction(4, 10) * Fraction(ratio)
        return mean

    @property
    def winning(self) -> int:
        return len(list(takewhile(lambda ratio: ratio is not None and ratio >= 1, reversed(self.judged))))

    def drafted(self, ratio: float) -> None:
        if self.state is State.RESTING:
            self.state, self.unjudged = State.PROBING, RULES.grace
        if self.unjudged > 0:
            self.unjudged -= 1
        elif self.state is State.PROBING and ratio >= 1:
            self.state, self.judged, self.lost_probes = State.DRAFTING, [], 0
        elif self.state is State.PROBING:
            self.state, self.floor_rounds, self.lost_probes = State.RESTING, 0, self.lost_probes + 1
        else:
            self.judged.append(ratio)
            if self.mean < 1:
                self.state, self.floor_rounds = State.RESTING, 0

    def floored(self) -> None:
        if self.state is State.RESTING:
            self.floor_rounds += 1
        else:
            self.judged.append(None)


class GateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.model = Gate(RULES), PlainModel()

    @precondition(lambda self: self.gate.wish() is Wish.DRAFT)
    @rule(ratio=ratios)
    def a_round_is_drafted(self, ratio: float) -> None:
        self.gate.drafted(ratio)
        self.model.drafted(ratio)

    @precondition(lambda self: self.gate.wish() is Wish.PROBE)
    @rule(ratio=ratios)
    def it_probes(self, ratio: float) -> None:
        self.gate.drafted(ratio)
        self.model.drafted(ratio)

    @precondition(lambda self: self.gate.wish() is not Wish.DRAFT)
    @rule(times=st.integers(1, 8))
    def the_floor_runs(self, times: int) -> None:
        for _ in range(times):
            self.gate.floored()
            self.model.floored()

    @invariant()
    def they_agree(self) -> None:
        gate, model = self.gate, self.model
        assert (gate.state, gate.interval) == (model.state, model.interval)
        if model.state is State.RESTING:
            wish = Wish.PROBE if model.floor_rounds >= model.interval else Wish.REST
        else:
            wants_refresh = model.state is State.DRAFTING and model.winning >= RULES.refresh
            wish = Wish.REFRESH if wants_refresh else Wish.DRAFT
        assert gate.wish() is wish


def test_the_gate_is_its_model():
    run_state_machine_as_test(
        GateMachine, settings=settings(max_examples=60, stateful_step_count=50, deadline=None, derandomize=True)
    )


def test_the_default_constants_are_those_of_the_table():
    rules = GateRules()
    assert (rules.grace, rules.first, rules.most, rules.refresh) == (3, 32, 512, 48)
    assert (rules.hope, rules.keep, rules.take) == (2.0, 0.6, 0.4)


def test_a_lucky_probe_that_is_no_win_backs_off():
    gate = Gate(GateRules(grace=0))
    while gate.state is State.DRAFTING:
        gate.drafted(0.5)
    for _ in range(32):
        gate.floored()
    gate.drafted(0.99)  # would lift a mean that begins again at 2 far above 1
    assert (gate.state, gate.interval) == (State.RESTING, 64)


@pytest.mark.parametrize(
    ("kept", "lengths"),
    [([8, 16, 16], [14, 15, 15]), ([1, 1, 1, 1, 1], [7, 3, 2, 2, 2]), ([8, 1, 15, 16], [14, 14, 15, 15])],
)
def test_a_length_follows_what_was_used(kept, lengths):
    length, seen = Length(7, 15), []
    for each in kept:
        length.record(length.now, min(each, length.now + 1))
        seen.append(length.now)
    assert seen == lengths
