"""Logprobs are the target's own, of the raw row, at every kept position."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.sampling import Ask, Rules, SamplingParams, sample_and_match
from tests.sampling.plain_sampler import ranked

TOLERANCE = 1e-5


def check(rows, verdict, top):
    assert len(verdict.logprobs) == len(verdict.tokens)
    for row, token, seen in zip(rows, verdict.tokens, verdict.logprobs, strict=False):
        oracle = row.double().log_softmax(0)
        assert abs(seen.logprob - oracle[token].item()) < TOLERANCE
        assert [id for id, _ in seen.top] == ranked(row.tolist())[:top]
        assert all(abs(logprob - oracle[id].item()) < TOLERANCE for id, logprob in seen.top)
        assert all(logprob == seen.logprob for id, logprob in seen.top if id == token)


@pytest.mark.parametrize("size", [5, 999, 49152])
@pytest.mark.parametrize("top", [0, 1, 3, 20])
@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}])
def test_logprobs_of_a_block_equal_the_log_softmax_of_its_raw_rows(size, top, options):
    rows = torch.randn(6, size, generator=torch.Generator().manual_seed(size)).mul(5).bfloat16().float()
    params = SamplingParams(seed=3, logprobs=top, logit_bias={1: 4.0}, presence_penalty=1.0, **options)
    rules = Rules(params, [0], frozenset())
    draft = []
    for row in rows[:4]:  # four right drafts, then a wrong one
        draft.append(sample_and_match(row[None], [Ask(_advanced(rules, draft), 1 + len(draft), ())])[0].tokens[0])
    (verdict,) = sample_and_match(rows, [Ask(rules, 1, [*draft, -1])])
    assert verdict.accepted == 4
    check(rows, verdict, top)
    assert {len(each.top) for each in verdict.logprobs} == {min(top, size)}


def _advanced(rules, tokens):
    fork = rules.fork()
    for token in tokens:
        fork.advance(token)
    return fork


@given(st.lists(st.integers(-40, 40).map(lambda x: x / 8), min_size=1, max_size=50), st.integers(0, 20))
@settings(deadline=None)
def test_top_ids_among_ties_go_by_value_then_id(row, top):
    rows = torch.tensor([row])
    (verdict,) = sample_and_match(rows, [Ask(Rules(SamplingParams(seed=0, logprobs=top), [], frozenset()), 0, ())])
    check(rows, verdict, top)


def test_a_flat_row_of_a_real_size_reports_its_lowest_ids():
    rows = torch.zeros(1, 49152)
    params = SamplingParams(seed=0, temperature=0.0, logprobs=20)
    (verdict,) = sample_and_match(rows, [Ask(Rules(params, [], frozenset()), 0, ())])
    check(rows, verdict, 20)


def test_those_who_do_not_ask_get_none():
    asks = [Ask(Rules(SamplingParams(seed=0, logprobs=n), [], frozenset()), 0, ()) for n in (None, 0, 2)]
    verdicts = sample_and_match(torch.zeros(3, 4), asks)
    assert [[len(each.top) for each in verdict.logprobs] for verdict in verdicts] == [[], [0], [2]]
