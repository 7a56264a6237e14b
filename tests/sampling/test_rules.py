"""Every row sees its own history: rules forked and advanced equal the plain function of all tokens so far."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from services.engine.sampling import Rules, SamplingParams
from services.errors import InvalidRequest
from tests.sampling import plain_sampler, scripted

V = 12
tokens = st.lists(st.integers(0, V - 1), max_size=30)
rows = st.lists(st.integers(-16, 16).map(lambda x: x / 4), min_size=V, max_size=V)
STOPS = frozenset({2, 7})


class ForksAgainstHistories(RuleBasedStateMachine):
    """Rules and forks of forks, advanced in any order; each is held against its own whole list of tokens."""

    @initialize(params=scripted.params(V), prompt=tokens)
    def start(self, params, prompt):
        self.params, self.prompt = params, prompt
        self.known = [(Rules(params, prompt, STOPS), [])]

    @rule(which=st.integers(0, 5))
    def fork(self, which):
        rules, output = self.known[which % len(self.known)]
        self.known = [*self.known[-5:], (rules.fork(), list(output))]

    @rule(which=st.integers(0, 5), more=tokens)
    def advance(self, which, more):
        rules, output = self.known[which % len(self.known)]
        for token in more:
            rules.advance(token)
            output.append(token)

    @rule(row=rows)
    def apply(self, row):
        logits = torch.tensor(row)
        for rules, output in self.known:
            assert rules.generated == len(output)
            plain = plain_sampler.after_rules(row, self.params, self.prompt, output, STOPS)
            assert rules.apply(logits).tolist() == plain
            assert logits.tolist() == row


def test_forks_equal_the_plain_function_of_their_own_history():
    bounds = settings(max_examples=60, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(ForksAgainstHistories, settings=bounds)


@given(scripted.params(300), st.lists(st.integers(0, 299), min_size=100, max_size=400))
@settings(max_examples=30, deadline=None)
def test_a_long_history_that_is_forked_at_every_round_counts_every_token(params, output):
    rules = Rules(params, output[:50], STOPS)
    for token in output:
        rules.fork().advance(token)  # a draft that is thrown away
        rules.advance(token)
    row = [((id * 37) % 64 - 32) / 4 for id in range(300)]
    plain = plain_sampler.after_rules(row, params, output[:50], output, STOPS)
    assert rules.apply(torch.tensor(row)).tolist() == plain


@given(scripted.params(V), st.lists(rows, min_size=2, max_size=4))
@settings(deadline=None)
def test_rows_that_share_a_history_may_be_processed_together(params, several):
    rules = Rules(params, [1, 2, 3], STOPS)
    block = torch.tensor(several)
    assert torch.equal(rules.apply(block), torch.stack([rules.apply(row) for row in block]))


@given(scripted.params(V), tokens)
@settings(deadline=None)
def test_stateless_rules_do_not_change_and_neutral_ones_do_nothing(params, output):
    rules, row = Rules(params, [], STOPS), torch.linspace(-3, 3, V)
    stateful, neutral, before = rules.stateful, rules.neutral, rules.apply(row)
    for token in output:
        rules.advance(token)
        if not stateful:
            assert torch.equal(rules.apply(row), before)
        if neutral:
            assert not stateful
            assert rules.apply(row) is row


def test_rules_come_in_their_order():
    # 2.0 / 2 = 1.0, minus 2 x 0.25, minus 0.25, plus 3: another order gives another number.
    params = SamplingParams(
        seed=0, repetition_penalty=2.0, frequency_penalty=0.25, presence_penalty=0.25, logit_bias={0: 3.0}
    )
    rules = Rules(params, [0], frozenset())
    rules.advance(0)
    rules.advance(0)
    assert rules.apply(torch.tensor([2.0, 2.0])).tolist() == [3.25, 2.0]


def test_the_prompt_counts_for_repetition_only():
    row = torch.tensor([1.0, -1.0, 1.0])
    assert Rules(SamplingParams(seed=0, repetition_penalty=2.0), [0, 1, 1], frozenset()).apply(row).tolist() == [
        0.5,
        -2.0,
        1.0,
    ]
    counted = SamplingParams(seed=0, presence_penalty=2.0, frequency_penalty=2.0)
    assert Rules(counted, [0, 1, 1], frozenset()).apply(row).tolist() == row.tolist()


def test_no_bias_lifts_a_masked_token():
    params = SamplingParams(seed=0, logit_bias={0: 100.0, 1: 100.0}, banned=frozenset({0}), min_tokens=1)
    rules = Rules(params, [], frozenset({1}))
    assert rules.apply(torch.zeros(3)).tolist() == [-torch.inf, -torch.inf, 0.0]
    rules.advance(2)
    assert rules.apply(torch.zeros(3)).tolist() == [-torch.inf, 100.0, 0.0]


@pytest.mark.parametrize(
    ("field", "params"),
    [
        ("logit_bias", {"logit_bias": {8: 1.0}}),
        ("logit_bias", {"logit_bias": {-1: 1.0}}),
        ("banned_ids", {"banned": frozenset({8})}),
        ("banned_ids", {"banned": frozenset(range(8))}),
        ("banned_ids", {"banned": frozenset(range(7)), "min_tokens": 1}),
    ],
)
def test_what_only_a_model_can_judge_is_refused_by_the_name_of_its_field(field, params):
    with pytest.raises(InvalidRequest, match=field) as refusal:
        SamplingParams(seed=0, **params).check(8, stop_ids=frozenset({7}))
    assert refusal.value.field == field
    SamplingParams(seed=0, banned=frozenset(range(7))).check(8, stop_ids=frozenset({7}))
