"""The order of runs, and the interval of a ratio against its exact distribution."""

from fractions import Fraction
from itertools import product
from math import comb
from statistics import median

import pytest

from bench.pairs import RESAMPLES, interval, means, ratio, there_and_back

SLACK = 0.006  # four standard errors of a share of 0.025 among the resamples


def recorded(names: str, repeats: int):
    order: list[str] = []

    def way(name: str):
        return lambda: order.append(name) or len(order)

    return order, there_and_back({name: way(name) for name in names}, repeats)


def test_two_ways_run_abba_in_every_repeat_after_one_run_of_each():
    order, samples = recorded("AB", repeats=2)
    assert "".join(order) == "AB" + "ABBA" + "ABBA"
    assert samples == {"A": [(3, 6), (7, 10)], "B": [(4, 5), (8, 9)]}


def test_many_ways_run_there_and_back():
    order, _ = recorded("ABCD", repeats=1)
    assert "".join(order) == "ABCD" + "ABCDDCBA"


def test_a_steady_drift_weighs_the_same_on_every_way():
    _, samples = recorded("ABC", repeats=3)
    assert means(samples["A"], float) == means(samples["B"], float) == means(samples["C"], float)


def test_pairs_of_one_repeat_are_divided():
    """Of a machine that is ten times slower in some repeats, the ratio knows nothing."""
    pace = [1, 10, 1, 10, 1, 1, 10]
    found = ratio([3 * each for each in pace], [2 * each for each in pace])
    assert (found.median, found.low, found.high, found.repeats) == (1.5, 1.5, 1.5, 7)


def chance_at_most(rank: int, count: int) -> Fraction:
    """That the median of `count` (odd) values drawn from as many, with replacement, is at most the `rank`th smallest:
    more than half of the draws must be."""
    half = count // 2 + 1
    return sum(
        comb(count, k) * Fraction(rank, count) ** k * Fraction(count - rank, count) ** (count - k)
        for k in range(half, count + 1)
    )


@pytest.mark.parametrize("count", [5, 7, 15, 51, 99])
def test_the_interval_of_an_odd_number_of_values_is_that_of_the_exact_distribution(count):
    values = [float(place**2) for place in range(1, count + 1)]
    found = interval(values[::-1])
    for rank in (1 + values.index(found.low), count - values.index(found.high)):  # the distribution is symmetric
        assert chance_at_most(rank - 1, count) < 0.025 + SLACK
        assert chance_at_most(rank, count) > 0.025 - SLACK
    assert found.median == values[count // 2]


def test_the_interval_of_an_even_number_of_values_is_that_of_all_resamples():
    values = [1.0, 2.0, 4.0, 8.0]
    medians = sorted(median(drawn) for drawn in product(values, repeat=4))
    outside = len(medians) * 25 // 1000
    found = interval(values)
    assert (found.low, found.high) == (medians[outside], medians[-1 - outside])


def test_the_same_values_give_the_same_interval():
    values = [0.9, 1.1, 1.3, 1.2, 1.0, 1.4, 0.8]
    assert interval(values) == interval(values)
    assert RESAMPLES >= 10_000
