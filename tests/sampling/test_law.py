"""What is drawn follows softmax(z / T) over what the filters keep, with a drafter and without.

20,000 draws against the probabilities of the oracle; the bound is exceeded by chance once in a million."""

import pytest
import torch

from services.engine.sampling import SamplingParams
from tests.sampling import plain_sampler
from tests.sampling.chi_square import bound, statistic
from tests.sampling.scripted import generate, no_drafts

ROW = [2.0, 1.5, 1.5, 1.0, 0.5, 0.0, 0.0, -0.5, -1.0, -2.0]
FOUR = [0.5, 0.25, 0.125, 0.125]
FILTERS = {"all": {}, "top_k": {"top_k": 4}, "top_p": {"top_p": 0.8}, "min_p": {"min_p": 0.2}}
DRAWS, SEQUENCES = 20_000, 200


def fixed(logits):
    row = torch.tensor(logits)
    return lambda history: row


def draws(logits, temperature, options, drafter):
    asks = [
        (SamplingParams(seed=1000 * s - 50_000, temperature=temperature, **options), [0], frozenset())
        for s in range(SEQUENCES)
    ]
    return generate(fixed(logits), asks, DRAWS // SEQUENCES, drafter)


def check_law(outputs, logits, temperature, options):
    law = plain_sampler.probabilities(logits, SamplingParams(seed=0, temperature=temperature, **options))
    drawn = [token for output in outputs for token in output]
    assert len(drawn) == DRAWS
    assert set(drawn) <= set(law)
    assert statistic([drawn.count(id) for id in law], [DRAWS * p for p in law.values()]) < bound(len(law) - 1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", FILTERS)
def test_draws_follow_the_law_with_and_without_a_drafter(name, temperature):
    options = FILTERS[name]
    plain, verdicts = draws(ROW, temperature, options, no_drafts)
    check_law(plain, ROW, temperature, options)
    assert not any(verdict.accepted for verdict in verdicts)

    def right_for_a_while(index, output):
        draft = plain[index][len(output) : len(output) + 7]
        return draft[: index % 8] + [(token + 1) % len(ROW) for token in draft[index % 8 :]]

    for drafter in (lambda index, output: [0] * 7, right_for_a_while):
        outputs, verdicts = draws(ROW, temperature, options, drafter)
        assert any(verdict.accepted for verdict in verdicts)
        assert outputs == plain
        check_law(outputs, ROW, temperature, options)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_position_of_a_block_follows_the_law(temperature, record_property):
    """A law of four tokens; a drafter that is greedy, and one that samples: both only change how much is accepted."""
    logits = torch.tensor(FOUR).log().tolist()
    sampled = torch.multinomial(torch.tensor(FOUR), 300, replacement=True, generator=torch.Generator().manual_seed(3))
    drafters = {
        "greedy": lambda index, output: [0] * 3,
        "sampled": lambda index, output: sampled[(len(output) + index) % 290 :][:3].tolist(),
    }
    for name, drafter in drafters.items():
        outputs, verdicts = draws(logits, temperature, {}, drafter)
        check_law(outputs, logits, temperature, {})
        record_property(f"accepted, {name}", sum(verdict.accepted for verdict in verdicts) / DRAWS)
        law = plain_sampler.probabilities(logits, SamplingParams(seed=0, temperature=temperature))
        for place in range(4):
            drawn = [verdict.tokens[place] for verdict in verdicts if len(verdict.tokens) > place]
            # What stands at a place was reached by accepted drafts before it, which says nothing about itself.
            expected = [len(drawn) * p for p in law.values()]
            assert min(expected) > 5
            assert statistic([drawn.count(id) for id in law], expected) < bound(3)


def test_neighbouring_positions_are_independent():
    logits = torch.tensor(FOUR).log().tolist()
    outputs, _ = draws(logits, 1.0, {}, no_drafts)
    pairs = [(output[i], output[i + 1]) for output in outputs for i in range(0, len(output), 2)]
    cells = [(a, b) for a in range(4) for b in range(4)]
    expected = [len(pairs) * FOUR[a] * FOUR[b] for a, b in cells]
    assert statistic([pairs.count(cell) for cell in cells], expected) < bound(15)


def test_a_large_vocabulary_follows_the_law_too():
    """Whole rows of 5,000 ids: the tail is as likely as it should be, in sixteen bins of equal mass."""
    size, bins = 5000, 16
    row = torch.randn(size, generator=torch.Generator().manual_seed(5)) * 2
    shares = row.double().softmax(0).cumsum(0)
    bin_of = (shares * bins).clamp_max(bins - 1e-9).long()
    mass = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of, row.double().softmax(0))
    asks = [(SamplingParams(seed=s), [0], frozenset()) for s in range(100)]
    outputs, _ = generate(lambda history: row, asks, 40, no_drafts)
    seen = torch.bincount(bin_of[torch.tensor(outputs).flatten()], minlength=bins)
    assert statistic(seen.tolist(), (mass * seen.sum()).tolist()) < bound(bins - 1)
