"""Combinations of values in which every pair of values of two factors occurs."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any


def all_pairs(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Greedy: begin each combination with a pair still missing, and complete it with what covers most others."""
    names = list(factors)
    missing = {
        (a, x, b, y)
        for a, b in combinations(names, 2)
        for x, y in product(range(len(factors[a])), range(len(factors[b])))
    }
    chosen = []
    while missing:
        a, x, b, y = min(missing)
        row = {a: x, b: y}
        for name in names:
            if name not in row:
                row[name] = max(range(len(factors[name])), key=lambda value: _gain(missing, names, row, name, value))
        missing -= _pairs(names, row)
        chosen.append({name: factors[name][row[name]] for name in names})
    return chosen


def _pairs(names: Sequence[str], row: Mapping[str, int]) -> set[tuple[str, int, str, int]]:
    return {(a, row[a], b, row[b]) for a, b in combinations([name for name in names if name in row], 2)}


def _gain(
    missing: set[tuple[str, int, str, int]], names: Sequence[str], row: dict[str, int], name: str, value: int
) -> int:
    return len(missing & _pairs(names, row | {name: value}))
