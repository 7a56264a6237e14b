"""What is known of a drafter's drafts, and what becomes of that while nobody uses it."""

import pytest

from services.target.policy.acceptance import HOPE, POSITIONS, Acceptance, Prior


def prior_of(accepted, rounds=100):
    prior = Prior()
    for _ in range(rounds):
        prior.add(7, 7, accepted)
    return prior


def test_a_drafter_that_nobody_used_for_a_million_rounds_is_one_that_was_never_heard():
    prior = prior_of(0)
    prior.refresh()
    assert prior.rates[0] < 0.1
    for _ in range(1_000_000):
        prior.relax()
    prior.refresh()
    assert prior.rates == pytest.approx([HOPE] * POSITIONS)
    assert prior.speaks == pytest.approx(1.0)


@pytest.mark.parametrize("rounds", [1, 50, 1_000_000])
def test_rounds_without_a_drafter_count_the_same_told_one_by_one_or_all_at_once(rounds):
    prior = prior_of(3)
    prior.refresh()
    singly, at_once = Acceptance(prior), Acceptance(prior)
    for each in (singly, at_once):
        for _ in range(20):
            each.record(7, 7, 0)
    for now in range(1, rounds + 1):
        singly.relax(now)
    at_once.relax(rounds)
    assert at_once.survival(7) == pytest.approx(singly.survival(7))
    fresh = Acceptance(prior).survival(7)
    assert (at_once.survival(7) == pytest.approx(fresh)) == (rounds == 1_000_000)
