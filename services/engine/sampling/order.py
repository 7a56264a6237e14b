"""The one order of every selection: value descending, then id ascending.

Shape key: R rows, V vocabulary, W window of leading ids, K ids wanted, B ids of a block, D values of a column,
C candidates."""

from dataclasses import dataclass

import torch
from torch import Tensor

GROWTH = 4  # of a window that ended too early
_BLOCK, _DEPTH = 1024, 16


@dataclass(frozen=True, slots=True)
class Window:
    """The leading ids of each row, in order.

    Of the ids that share the last value some may be missing, so a row can be trusted up to `whole_R` entries only."""

    ids_RW: Tensor
    values_RW: Tensor
    whole_R: Tensor


def leading(rows_RV: Tensor, width: int) -> Window:
    """`topk` leaves the order of equal values open: sort its ids, then its values without disturbing equal ones."""
    vocab_size = rows_RV.shape[1]
    if width < vocab_size:
        ids_RW = _largest(rows_RV, width).sort(1).values
    else:
        ids_RW = torch.arange(vocab_size, device=rows_RV.device).expand_as(rows_RV)
    values_RW, order_RW = rows_RV.gather(1, ids_RW).sort(dim=1, descending=True, stable=True)
    whole_R = (values_RW > values_RW[:, -1:]).sum(1) if width < vocab_size else torch.full_like(ids_RW[:, 0], width)
    return Window(ids_RW.gather(1, order_RW), values_RW, whole_R)


def top(rows_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Exactly the first `count` ids of each row's order, and their values; windows grow past ties at the border."""
    vocab_size = rows_RV.shape[1]
    count = min(count, vocab_size)
    ids_RK = torch.empty(len(rows_RV), count, dtype=torch.int64, device=rows_RV.device)
    values_RK = rows_RV.new_empty(ids_RK.shape)
    open_R = torch.arange(len(rows_RV), device=rows_RV.device)
    width = 2 * count
    while count and len(open_R):
        window = leading(rows_RV[open_R], min(width, vocab_size))
        settled_R = window.whole_R >= count
        ids_RK[open_R[settled_R]] = window.ids_RW[settled_R, :count]
        values_RK[open_R[settled_R]] = window.values_RW[settled_R, :count]
        open_R, width = open_R[~settled_R], width * GROWTH
    return ids_RK, values_RK


def _largest(rows_RV: Tensor, width: int) -> Tensor:
    """The ids of `width` largest values [R, W], in any order, any of those equal to the smallest.

    A long row is read as a table whose columns have `_DEPTH` values each: the columns with the largest maxima hold
    every value above the smallest of those maxima, and they are far fewer than the row (a third of the time)."""
    columns = rows_RV.shape[1] // _DEPTH
    if columns < 4 * width:
        return rows_RV.topk(width, sorted=False).indices
    table_RV, rest_RV = rows_RV.split_with_sizes([columns * _DEPTH, rows_RV.shape[1] - columns * _DEPTH], dim=1)
    best_R1W = table_RV.view(-1, _DEPTH, columns).amax(1, keepdim=True).topk(width, sorted=False).indices
    starts_D1 = torch.arange(0, table_RV.shape[1], columns, device=rows_RV.device)[:, None]
    rest_ids = torch.arange(table_RV.shape[1], rows_RV.shape[1], device=rows_RV.device).expand_as(rest_RV)
    ids_RC = torch.cat([(best_R1W + starts_D1).flatten(1), rest_ids], dim=1)
    return ids_RC.gather(1, rows_RV.gather(1, ids_RC).topk(width, sorted=False).indices)


def first_largest(rows_RV: Tensor) -> Tensor:
    """The first id of each row's order [R]. Block maxima first: `argmax` over a long row costs six times as much.

    `argmax` promises the first of equal values, so the first block that has the maximum holds the lowest id."""
    vocab_size = rows_RV.shape[1]
    blocks = vocab_size // _BLOCK
    if blocks < 2:
        return rows_RV.argmax(1)
    body_RV, rest_RV = rows_RV.split_with_sizes([blocks * _BLOCK, vocab_size - blocks * _BLOCK], dim=1)
    maxima = body_RV.view(-1, blocks, _BLOCK).amax(2)
    if rest_RV.shape[1]:
        maxima = torch.cat([maxima, rest_RV.amax(1, keepdim=True)], dim=1)
    # The short last block is widened to the left; what it then shares with its neighbour is smaller than its maximum.
    start_R1 = (maxima.argmax(1, keepdim=True) * _BLOCK).clamp_max(vocab_size - _BLOCK)
    ids_RB = start_R1 + torch.arange(_BLOCK, device=rows_RV.device)
    return start_R1[:, 0] + rows_RV.gather(1, ids_RB).argmax(1)
