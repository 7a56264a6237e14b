"""Properties of how drafts are given out, for any costs and probabilities."""

from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

from services.target.policy.allot import Choice, Costs, allot
from services.target.policy.assign import assign

seconds = st.floats(1e-4, 1.0)
rates = st.lists(st.floats(0.0, 1.0), max_size=15)


@st.composite
def choices(draw, mode=None):
    alive, gains = 1.0, []
    for rate in draw(rates):
        alive *= rate
        gains.append(alive)
    return Choice(mode or draw(st.sampled_from(["mtp", "ngram"])), gains, draw(st.floats(0.05, 1.0)))


@st.composite
def costs(draw):
    base, row, wait, token = draw(seconds), draw(st.floats(0, 0.1)), draw(seconds), draw(st.floats(0, 0.1))
    step = draw(st.integers(1, 9))
    return Costs(
        lambda rows: base + row * (rows // step if step > 1 else rows), lambda mode, size, length: wait + token * length
    )


def plain_rate(count: int, costs: Costs) -> float:
    return count / costs.verify(float(count))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(given_choices=st.lists(st.none() | choices(), min_size=1, max_size=20), costs=costs())
def test_nothing_is_chosen_that_is_expected_to_be_slower_than_plain_decoding(given_choices, costs):
    chosen = allot(given_choices, costs)
    assert chosen.rate >= plain_rate(len(given_choices), costs) * (1 - 1e-9)
    for choice, length in zip(given_choices, chosen.lengths, strict=True):
        assert 0 <= length <= (len(choice.gains) if choice else 0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(choice=choices(mode="mtp"), costs=costs())
def test_alone_no_other_length_is_better(choice, costs):
    chosen = allot([choice], costs)
    for length in range(1, len(choice.gains) + 1):
        tokens = 1 + sum(choice.gains[:length])
        took = costs.verify(1 + choice.rows * length) + costs.draft("mtp", 1, length)
        assert chosen.rate >= tokens / took * (1 - 1e-9)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rate=st.floats(0.3, 0.95), base=st.floats(0.005, 0.05), row=st.floats(1e-5, 2e-3))
def test_equal_sequences_get_ever_shorter_drafts_as_the_batch_fills(rate, base, row):
    choice = Choice("mtp", [rate ** (place + 1) for place in range(15)])
    costs = Costs(lambda rows: base + row * rows, lambda mode, size, length: 0.0)
    means = []
    for count in (1, 2, 4, 8, 16):
        lengths = allot([choice] * count, costs).lengths
        assert max(lengths) - min(lengths) <= 1
        means.append(sum(lengths) / count)
    assert all(later <= earlier + 0.25 for earlier, later in pairwise(means)), means  # places are weighed at a stride


@settings(max_examples=60, deadline=None, derandomize=True)
@given(gains=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=3), costs=costs())
def test_the_drafters_that_are_given_out_are_worth_as_much_as_any_one_for_all(gains, costs):
    options = [{"mtp": Choice("mtp", [first]), "ngram": Choice("ngram", [second])} for first, second in gains]
    _, best = assign(options, costs)
    for mode in ("mtp", "ngram"):
        assert best.rate >= allot([each[mode] for each in options], costs).rate * (1 - 1e-9)
    for lengths in product((0, 1), repeat=len(gains)):
        tokens = len(gains) + sum(first for (first, _), length in zip(gains, lengths, strict=True) if length)
        wait = costs.draft("mtp", 1, 1) if any(lengths) else 0.0
        assert best.rate >= tokens / (costs.verify(float(len(gains) + sum(lengths))) + wait) * (1 - 1e-9)


def test_what_must_be_drafted_is():
    costs = Costs(lambda rows: rows, lambda mode, size, length: 10.0)
    chosen = allot([Choice("mtp", [0.1, 0.01], least=1), None, Choice("mtp", [0.1])], costs)
    assert chosen.lengths[0] == 1
