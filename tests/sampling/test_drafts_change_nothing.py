"""No draft can change the answer: the tokens are those of plain steps, whatever was proposed, whoever shares a call."""

import random
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.sampling import Ask, Rules, SamplingParams, sample_and_match
from tests.sampling.scripted import generate, no_drafts, params, plainly, row_of, scripted_drafts

V = 14
STOPS = frozenset({0, 5})


@cache
def rows_with(ties):
    return cache(lambda recent: row_of(recent, V, ties))


def model(ties):
    return lambda history: rows_with(ties)(tuple(history[-3:]))


asked = st.lists(
    st.tuples(params(V), st.lists(st.integers(0, V - 1), min_size=1, max_size=8), st.just(STOPS)),
    min_size=1,
    max_size=5,
)


def check(data, asked, ties, length=24):
    truth = plainly(model(ties), asked, length)
    outputs, _ = generate(model(ties), asked, length, scripted_drafts(data, truth, V))
    assert outputs == truth


@given(st.data(), asked, st.sampled_from([2, 4, 64]))
@settings(max_examples=60, deadline=None)
def test_no_draft_changes_a_token(data, asked, ties):
    check(data, asked, ties)


@pytest.mark.full
@given(st.data(), asked, st.sampled_from([2, 4, 64]))
@settings(max_examples=800, deadline=None)
def test_no_draft_changes_a_token_at_length(data, asked, ties):
    check(data, asked, ties, length=40)


OPTIONS = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.5},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.4},
    "repetition_penalty": {"repetition_penalty": 1.8},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 1.5},
    "greedy repetition_penalty": {"repetition_penalty": 1.8, "temperature": 0.0},
    "greedy presence_penalty": {"presence_penalty": 1.5, "temperature": 0.0},
    "greedy frequency_penalty": {"frequency_penalty": 1.5, "temperature": 0.0},
    "logit_bias": {"logit_bias": {3: 2.0, 4: -2.0}},
    "banned": {"banned": frozenset({1, 2, 3})},
    "min_tokens": {"min_tokens": 20},
    "seed": {"seed": 8},
    "choice": {"choice": 1},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("drafts", ["right", "wrong", "first wrong, then right", "right, then wrong"])
def test_every_option_is_honoured_at_every_verified_position(option, drafts):
    def ask(**options):
        return SamplingParams(**{"seed": 7, "temperature": 1.0, **options}), [1, 2], STOPS

    asks = [ask(**OPTIONS[option])]
    (truth,) = plainly(model(8), asks, 60)
    base = {"temperature": 0.0} if option.startswith("greedy ") else {}
    assert truth != plainly(model(8), [ask(**base)], 60)[0], "the option has no effect here, so it proves nothing"

    def drafter(index, output):
        right = truth[len(output) : len(output) + 7]
        wrong = [(token + 1) % V for token in right]
        return {
            "right": right,
            "wrong": wrong,
            "first wrong, then right": wrong[:1] + right[1:],
            "right, then wrong": right[:4] + wrong[4:],
        }[drafts]

    (output,), verdicts = generate(model(8), asks, 60, drafter)
    assert output == truth
    if drafts == "right":
        assert len(verdicts) == 8
    if drafts in ("wrong", "first wrong, then right"):
        assert all(verdict.accepted == 0 for verdict in verdicts)


def flat_model_of(logits):
    row = torch.tensor(logits)
    return lambda history: row


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty", "repetition_penalty"])
def test_every_accepted_token_is_counted_by_the_penalties(penalty):
    # Token 0 wins until its score drops, so drafts of nothing but 0 must be refused exactly there.
    asks = [(SamplingParams(seed=0, temperature=0.0, **{penalty: 1.25}), [3], frozenset())]
    fixed = flat_model_of([5.0, 4.5, 2.0, 1.0])
    (truth,) = plainly(fixed, asks, 40)
    assert truth[:2] == [0, 1]
    for draft in ([0] * 7, [0, 1] * 7):
        assert generate(fixed, asks, 40, lambda index, output, draft=draft: draft)[0] == [truth]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bias_rules_on_verified_positions_as_on_the_last(temperature):
    top_is_0 = flat_model_of([9.0, 1.0, 2.0, 0.0])
    against = (SamplingParams(seed=0, temperature=temperature, logit_bias={0: -100.0}), [1], frozenset())
    towards = (SamplingParams(seed=0, temperature=temperature, logit_bias={3: 100.0}), [1], frozenset())
    outputs, _ = generate(top_is_0, [against, towards], 40, lambda index, output: [0] * 5)
    assert 0 not in outputs[0]
    assert outputs[1] == [3] * 40


def test_a_stop_token_is_drawn_no_sooner_than_min_tokens_allow():
    wants_to_stop = flat_model_of([9.0, 1.0, 0.0])
    ask = (SamplingParams(seed=0, temperature=0.0, min_tokens=5), [1], frozenset({0}))
    for draft in ([], [0] * 7, [1] * 7, [1, 1, 0, 1, 1, 0, 0]):
        outputs, _ = generate(wants_to_stop, [ask], 7, lambda index, output, draft=draft: draft)
        assert outputs == [[1, 1, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 0.0, "presence_penalty": 0.1}])
def test_the_first_draft_token_is_verified(params):
    rules = Rules(SamplingParams(seed=0, **params), [], frozenset())
    rows = torch.tensor([[0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 0.0, 0.0]])
    (wrong,) = sample_and_match(rows, [Ask(rules, 0, [0, 2])])
    assert (wrong.tokens, wrong.accepted) == ((1,), 0)
    (half,) = sample_and_match(rows, [Ask(rules, 0, [1, 1])])
    assert (half.tokens, half.accepted) == ((1, 2), 1)
    (right,) = sample_and_match(rows, [Ask(rules, 0, [1, 2])])
    assert (right.tokens, right.accepted) == ((1, 2, 0), 2)
    assert rules.generated == 0


def test_rules_are_never_advanced_over_a_token_they_forbid():
    class Wary(Rules):
        def advance(self, token):
            assert token not in (-1, 1, 3)
            super().advance(token)

    params = SamplingParams(seed=0, temperature=0.0, presence_penalty=0.1, banned=frozenset({1}))
    for draft in ([1, 0], [0, 1, 0], [3, 0], [-1, 0], [0, -1]):
        rows = torch.tensor([[9.0, 0.0, 0.0]] * (len(draft) + 1))
        (verdict,) = sample_and_match(rows, [Ask(Wary(params, [], frozenset()), 0, draft)])
        assert verdict.tokens == (0,) * len(verdict.tokens)


def test_nobody_asking_is_nobody_answered():
    assert sample_and_match(torch.empty(0, V), []) == []


@pytest.mark.parametrize("size", [V, 3001, pytest.param(49_152, marks=pytest.mark.full)])
def test_neighbours_never_change_a_verdict(size):
    """Bit for bit, logprobs too: alone, among others, in another order, on rows cut out of a wider table."""
    rng = random.Random(size)
    table = torch.randn(40, size + 3, generator=torch.Generator().manual_seed(size)).mul(4).bfloat16().float()
    laws = [options for options in OPTIONS.values() if "seed" not in options] + [
        {"temperature": 0.8, "top_p": 0.95},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 2.0, "top_p": 0.99},
    ]
    crowd = []
    for n in range(60):
        draft = [rng.randrange(size) for _ in range(rng.choice([0, 0, 1, 5]))]
        rows = [rng.randrange(40) for _ in range(len(draft) + 1)]
        law = SamplingParams(**{"seed": n, "logprobs": rng.choice([None, 0, 3]), **rng.choice(laws)})
        if n % 3 == 0 and draft:  # a draft that is right for a while
            row = table[rows[:1], :size]
            draft[0] = sample_and_match(row, [Ask(Rules(law, [1, 2], STOPS), 9, ())])[0].tokens[0]
        crowd.append((Ask(Rules(law, [1, 2], STOPS), 9, draft), rows))

    def verdicts(some):
        return sample_and_match(table[[row for _, rows in some for row in rows], :size], [ask for ask, _ in some])

    alone = [verdicts([each])[0] for each in crowd]
    assert any(verdict.accepted for verdict in alone)
    assert verdicts(crowd) == alone
    order = rng.sample(range(len(crowd)), len(crowd))
    assert verdicts([crowd[i] for i in order]) == [alone[i] for i in order]
    in_wider_table = sample_and_match(
        torch.cat([table[rows] for _, rows in crowd])[:, :size], [ask for ask, _ in crowd]
    )
    assert in_wider_table == alone


def test_sequences_with_different_seeds_share_a_batch_as_if_alone():
    asks = [(SamplingParams(seed=seed, temperature=0.8), [1], STOPS) for seed in (1, 2, 3, 4)]
    together, _ = generate(model(64), asks, 30, no_drafts)
    assert together == plainly(model(64), asks, 30)
    assert len({tuple(output) for output in together}) == 4
