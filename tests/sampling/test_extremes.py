"""At the ends of every range: no NaN, no empty candidate set, and one threshold for greedy."""

import math

import pytest
import torch

from services.engine.sampling import Ask, Rules, SamplingParams, gumbel, sample_and_match
from services.engine.sampling.filter import Filters
from services.engine.sampling.order import leading

ROW = [1.0, 3.0, 3.0, -2.0, 0.5, 2.875]
EDGES = [{}, {"top_p": 1e-9}, {"top_k": 1}, {"top_k": 6}, {"top_k": 7}, {"min_p": 1.0}, {"top_p": 0.9, "min_p": 1e-9}]


def token(row, **params):
    rows = torch.tensor([row])
    params = SamplingParams(**{"seed": 0, "logprobs": 2, **params})
    (verdict,) = sample_and_match(rows, [Ask(Rules(params, [0, 1], frozenset()), 2, ())])
    assert math.isfinite(verdict.logprobs[0].logprob)
    return verdict.tokens[0]


@pytest.mark.parametrize("options", EDGES)
@pytest.mark.parametrize("temperature", [0.0, 1e-7, 1e-4])
def test_tiny_temperatures_are_greedy_and_skip_the_filters(temperature, options):
    assert all(token(ROW, temperature=temperature, seed=seed, **options) == 1 for seed in range(50))


def test_just_above_the_threshold_noise_decides_between_equals_only():
    drawn = {token(ROW, temperature=1e-3, seed=seed) for seed in range(50)}
    assert drawn == {1, 2}


@pytest.mark.parametrize("options", [{"top_p": 1e-9}, {"top_p": 1e-300}, {"top_p": 0.0}, {"top_k": 1}])
def test_a_filter_that_leaves_one_token_is_greedy(options):
    assert all(token(ROW, temperature=2.0, seed=seed, **options) == 1 for seed in range(50))


@pytest.mark.parametrize("size", [6, 49152])
def test_a_top_k_of_the_whole_vocabulary_is_no_filter(size):
    row = torch.randn(size, generator=torch.Generator().manual_seed(1)).tolist()
    for seed in range(4):
        free = token(row, seed=seed)
        assert all(token(row, seed=seed, top_k=k) == free for k in (size, size + 1, 2**31))


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 2.0])
def test_extreme_bias_decides(temperature):
    for seed in range(30):
        assert token(ROW, temperature=temperature, seed=seed, logit_bias={3: 100.0}) == 3
        assert token(ROW, temperature=temperature, seed=seed, logit_bias={1: -100.0, 2: -100.0}) not in (1, 2)


@pytest.mark.parametrize("options", [*EDGES, {"repetition_penalty": 2.0}, {"logit_bias": {4: -100.0}}])
@pytest.mark.parametrize("temperature", [0.0, 1e-3, 1.0, 2.0])
def test_the_only_token_that_is_not_banned_is_drawn(temperature, options):
    banned = frozenset(range(6)) - {4}
    assert all(token(ROW, temperature=temperature, seed=s, banned=banned, **options) == 4 for s in range(20))


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 2.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4])
@pytest.mark.parametrize("size", [7, 5000])
def test_nothing_but_finite_numbers_for_any_legal_logits_and_temperature(temperature, scale, size):
    row = torch.randn(size, generator=torch.Generator().manual_seed(2)).clamp(-1, 1) * scale
    rows = torch.stack([row, -row, torch.full_like(row, scale), torch.full_like(row, -scale)])
    for options in EDGES:
        params = SamplingParams(seed=1, temperature=temperature, logprobs=5, **options)
        filters = Filters.of(rows, [params] * 4)
        kept_RW, settled_R = filters.kept(leading(rows, size), size)
        assert kept_RW[:, 0].all()
        assert settled_R.all()
        for verdict in sample_and_match(rows, [Ask(Rules(params, [], frozenset()), 5, ())] * 4):
            assert 0 <= verdict.tokens[0] < size
            numbers = [verdict.logprobs[0].logprob, *(logprob for _, logprob in verdict.logprobs[0].top)]
            assert all(math.isfinite(number) and number <= 0 for number in numbers)


@pytest.mark.parametrize("options", [{}, {"top_k": 63}, {"top_p": 0.999999}, {"min_p": 1e-6}])
def test_scores_that_round_to_the_same_number_go_to_the_lowest_id(options):
    # Around 1e4 the steps of fp32 are as wide as the noise at T = 1e-3, so many scores are equal.
    steps = torch.randint(0, 3, (63,), generator=torch.Generator().manual_seed(3)) * 2.0**-10
    row = torch.cat([1e4 - steps, torch.tensor([-1e4])])
    ties = 0
    for seed in range(100):
        noise = gumbel(seed, 0, [2], torch.arange(64, dtype=torch.int32))[0]
        scores = (row + noise * 1e-3).tolist()
        ties += scores.count(max(scores)) > 1
        assert token(row.tolist(), seed=seed, temperature=1e-3, **options) == scores.index(max(scores))
    assert ties > 10


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 3}, {"min_p": 0.1}])
def test_a_broken_row_takes_nobody_with_it(options):
    rows = torch.tensor([[math.nan] * 6, ROW, [math.inf, math.nan, *ROW[2:]], [-math.inf] * 6])
    asks = [Ask(Rules(SamplingParams(seed=1, logprobs=2, **options), [], frozenset()), 0, ()) for _ in rows]
    verdicts = sample_and_match(rows, asks)
    assert all(0 <= verdict.tokens[0] < 6 for verdict in verdicts)
    assert verdicts[1] == sample_and_match(rows[1:2], asks[:1])[0]
