"""Every selection goes by value, largest first, and among equal values by id, smallest first."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.engine.sampling.order import first_largest, leading

SIZES = [1, 2, 15, 16, 17, 1023, 1024, 2047, 2048, 2049, 3072, 5000, 49152, 49153]


def rows_of_ties(rows, size, seed):
    generator = torch.Generator().manual_seed(seed)
    values = (torch.randn(rows, size, generator=generator) * 3).round()
    values[torch.rand(rows, size, generator=generator) < 0.01] = -torch.inf
    values[values == 0] *= torch.where(torch.rand(values[values == 0].shape, generator=generator) < 0.5, -1.0, 1.0)
    return values


def ordered(row):
    return sorted(range(len(row)), key=lambda id: (-row[id], id))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [1, 3])
def test_greedy_takes_the_lowest_id_of_the_largest_value(size, rows):
    values = rows_of_ties(rows, size, size)
    assert first_largest(values).tolist() == [ordered(row)[0] for row in values.tolist()]
    flat = torch.zeros(rows, size)
    assert first_largest(flat).tolist() == [0] * rows


@pytest.mark.parametrize("size", [2048, 2049, 3071])
def test_greedy_finds_a_largest_value_anywhere(size):
    for at in [0, 1, 1023, 1024, 1025, 2046, 2047, size - 2, size - 1]:
        row = torch.zeros(1, size)
        row[0, at] = 1
        assert first_largest(row).item() == at
        row[0, at:] = 1
        assert first_largest(row).item() == at


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("width", [1, 7, 128, 1024])
def test_a_window_holds_the_beginning_of_the_order(size, width):
    width = min(width, size)
    values = rows_of_ties(3, size, size + width)
    values[1] = torch.randn(size, generator=torch.Generator().manual_seed(width))
    window = leading(values, width)
    for r, row in enumerate(values.tolist()):
        whole, order = int(window.whole_R[r]), ordered(row)
        border = row[order[width - 1]]
        assert whole == (width if width == size else sum(value > border for value in row))
        assert window.ids_RW[r, :whole].tolist() == order[:whole]
        assert window.values_RW[r].tolist() == [row[id] for id in window.ids_RW[r].tolist()]


def test_a_window_reads_rows_of_a_wider_table():
    wide = rows_of_ties(4, 50_000, 1)
    rows = wide[:, :49152]
    assert torch.equal(leading(rows, 128).ids_RW, leading(rows.contiguous(), 128).ids_RW)
    assert torch.equal(first_largest(rows), first_largest(rows.contiguous()))


@given(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1.5]), min_size=1, max_size=40), st.integers(1, 40))
def test_a_window_is_right_for_any_pattern_of_ties(row, width):
    window = leading(torch.tensor([row]), min(width, len(row)))
    whole = int(window.whole_R[0])
    assert window.ids_RW[0, :whole].tolist() == ordered(row)[:whole]
