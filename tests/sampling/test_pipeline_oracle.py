"""The fast way from a row to a token against plain Python, on rows full of ties and at the edges of every filter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.sampling import Ask, Rules, SamplingParams, gumbel, sample_and_match
from services.engine.sampling.filter import Filters
from services.engine.sampling.order import leading
from tests.sampling import plain_sampler, scripted

grid = st.integers(-64, 64).map(lambda x: x / 8) | st.sampled_from([0.0, -0.0, 1.0])
bf16 = st.floats(-30, 30, width=16).map(lambda x: torch.tensor(x).bfloat16().item())


@st.composite
def cases(draw):
    size = draw(st.integers(2, 24))
    few = draw(st.lists(grid | bf16, min_size=1, max_size=6))
    row = draw(st.lists(st.sampled_from(few) | grid, min_size=size, max_size=size))
    history = st.lists(st.integers(0, size - 1), max_size=12)
    stop_ids = draw(st.frozensets(st.integers(0, size - 1), max_size=size // 3))
    return row, draw(scripted.params(size)), draw(history), draw(history), stop_ids


def check(case):
    row, params, prompt, output, stop_ids = case
    rules = Rules(params, prompt, stop_ids)
    for token in output:
        rules.advance(token)
    logits = torch.tensor([row])
    processed = plain_sampler.after_rules(row, params, prompt, output, stop_ids)
    assert rules.apply(logits[0]).tolist() == processed
    position = len(prompt) + len(output)
    (verdict,) = sample_and_match(logits, [Ask(rules, position, ())])
    assert verdict.tokens[0] in plain_sampler.tokens(processed, params, position)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_rules_filters_and_draw_equal_the_oracle(case):
    check(case)


@pytest.mark.full
@given(cases())
@settings(max_examples=4000, deadline=None)
def test_rules_filters_and_draw_equal_the_oracle_at_length(case):
    check(case)


def kept(row, width=None, **params):
    rows = torch.tensor([row], dtype=torch.float32)
    filters = Filters.of(rows, [SamplingParams(seed=0, **params)])
    window = leading(rows, width or len(row))
    kept_RW, settled_R = filters.kept(window, len(row))
    return window.ids_RW[0][kept_RW[0]].tolist(), settled_R.item()


@given(st.lists(grid, min_size=1, max_size=60), scripted.params(24))
@settings(max_examples=300, deadline=None)
def test_what_the_filters_keep_equals_the_oracle_for_any_window(row, params):
    rows = torch.tensor([row])
    params = SamplingParams(
        seed=0, temperature=max(params.temperature, 2e-4), top_k=params.top_k, top_p=params.top_p, min_p=params.min_p
    )
    filters, order = Filters.of(rows, [params]), plain_sampler.ranked(row)
    answers = set()
    for width in range(1, len(row) + 1):
        window = leading(rows, width)
        kept_RW, settled_R = filters.kept(window, len(row))
        if settled_R.item():
            answers.add(tuple(window.ids_RW[0][kept_RW[0]].tolist()))
    assert len(answers) == 1
    assert answers <= {tuple(order[:count]) for count in plain_sampler.prefixes(row, params)}


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 8])
def test_top_k_keeps_exactly_k_of_equal_values_the_lowest_ids(k):
    assert kept([1.0, 2.0, 2.0, 2.0, 1.0, 2.0, 1.0, 0.0], top_k=k)[0] == [1, 2, 3, 5, 0, 4, 6, 7][:k]


@pytest.mark.parametrize(("size", "p", "count"), [(4, 0.5, 2), (4, 0.51, 3), (10, 0.9, 9), (25, 0.2, 5), (10, 0.6, 6)])
def test_top_p_keeps_the_shortest_prefix_of_equal_values_that_reaches_p(size, p, count):
    assert kept([3.0] * size, top_p=p)[0] == list(range(count))


def test_top_p_measures_what_top_k_left():
    # 8 equal values, 4 left by top-k: a half of those is 2, a half of all would be 4.
    assert kept([0.0] * 8, top_k=4, top_p=0.5)[0] == [0, 1]


def test_min_p_is_relative_to_the_largest_and_keeps_ties_of_the_bound():
    row = [0.0, -1.0, -1.0, -3.0]
    assert kept(row, min_p=0.3)[0] == [0, 1, 2]
    assert kept(row, min_p=0.4)[0] == [0]
    assert kept(row, min_p=1.0)[0] == [0]


def test_a_window_that_ends_among_equal_values_does_not_decide():
    row = [0.0] * 100
    assert not kept(row, width=50, top_k=10)[1]
    assert kept(row, top_k=10) == (list(range(10)), True)


@pytest.mark.parametrize("size", [1000, 49157])
def test_windows_that_must_grow_give_the_tokens_of_a_full_sort(size):
    generator = torch.Generator().manual_seed(size)
    flat = torch.randn(6, size, generator=generator)
    rows = torch.stack([flat[0], flat[1].round(), torch.zeros(size), flat[3] * 3, (flat[4] * 8).round() / 8, -flat[5]])
    for law in ({"top_p": 0.95}, {"top_k": 700}, {"top_k": size - 1}, {"min_p": 0.01}, {"top_k": 900, "top_p": 0.5}):
        params = [SamplingParams(seed=r, **law) for r in range(6)]
        asks = [Ask(Rules(params[r], [], frozenset()), r, ()) for r in range(6)]
        for r, (verdict, row) in enumerate(zip(sample_and_match(rows, asks), rows.tolist(), strict=True)):
            order = plain_sampler.ranked(row)
            counts = plain_sampler.prefixes(row, params[r])
            assert max(counts) - min(counts) < 20
            z = rows[r, order[: max(counts)]].double()
            ids = torch.tensor(order[: max(counts)], dtype=torch.int32)
            noise = gumbel(params[r].seed, 0, [r], ids)[0].double()
            right = {order[int((z + noise)[:count].argmax())] for count in counts}
            assert verdict.tokens[0] in right
