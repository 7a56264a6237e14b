"""The token of every row: argmax(z + T * G) over the ids that the filters keep.

A row's token is a function of that row, its parameters and its position; rows share a call only to save time.

Shape key: R rows, V vocabulary, W window of leading ids."""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.engine.sampling.filter import Filters
from services.engine.sampling.noise import gumbel_of, row_key
from services.engine.sampling.order import first_largest, leading
from services.engine.sampling.params import SamplingParams

_FIRST_WINDOW, _GROWTH = 128, 8
_ROWS_AT_ONCE = 4  # temporaries of a few rows stay in the processor's cache


def draw(rows_RV: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> list[int]:
    """`rows_RV` after the rules; `positions[r]` is the absolute position of the token that row r draws."""
    greedy = [r for r, p in enumerate(params) if p.greedy]
    filtered = [r for r, p in enumerate(params) if not p.greedy and p.filtered]
    free = [r for r, p in enumerate(params) if not p.greedy and not p.filtered]
    tokens_R = torch.empty(len(params), dtype=torch.int64)
    keys = [0 if p.greedy else row_key(p.seed, p.choice, at) for p, at in zip(params, positions, strict=True)]
    if greedy:
        tokens_R[greedy] = first_largest(_rows(rows_RV, greedy)).cpu()
    if filtered:
        some_RV, laws = _rows(rows_RV, filtered), [params[r] for r in filtered]
        tokens_R[filtered] = _filtered(some_RV, Filters.of(some_RV, laws), [keys[r] for r in filtered]).cpu()
    for start in range(0, len(free), _ROWS_AT_ONCE):
        part = free[start : start + _ROWS_AT_ONCE]
        temperature_R1 = torch.tensor([[params[r].temperature] for r in part], device=rows_RV.device)
        tokens_R[part] = _free(_rows(rows_RV, part), temperature_R1, [keys[r] for r in part]).cpu()
    return tokens_R.tolist()


def _rows(rows_RV: Tensor, chosen: list[int]) -> Tensor:
    return rows_RV if len(chosen) == len(rows_RV) else rows_RV[chosen]


def _free(rows_RV: Tensor, temperature_R1: Tensor, keys: Sequence[int]) -> Tensor:
    ids_V = torch.arange(rows_RV.shape[1], dtype=torch.int32, device=rows_RV.device)
    return first_largest(_noisy(rows_RV, temperature_R1, gumbel_of(keys, ids_V)))


def _filtered(rows_RV: Tensor, filters: Filters, keys: Sequence[int], width: int = _FIRST_WINDOW) -> Tensor:
    """Draw from a window of leading ids; rows whose filters reach beyond it try again with a wider one."""
    vocab_size = rows_RV.shape[1]
    window = leading(rows_RV, min(width, vocab_size))
    kept_RW, settled_R = filters.kept(window, vocab_size)
    noise_RW = gumbel_of(keys, window.ids_RW.to(torch.int32))
    scores_RW = _noisy(window.values_RW, filters.temperature_R1, noise_RW).masked_fill_(~kept_RW, -torch.inf)
    best_RW = scores_RW == scores_RW.amax(1, keepdim=True)
    tokens_R = window.ids_RW.masked_fill(~best_RW, vocab_size - 1).amin(1)
    if not settled_R.all():
        open_R = ~settled_R
        more = [key for key, settled in zip(keys, settled_R.tolist(), strict=True) if not settled]
        tokens_R[open_R] = _filtered(rows_RV[open_R], filters.of_rows(open_R), more, width * _GROWTH)
    return tokens_R


def _noisy(values_RW: Tensor, temperature_R1: Tensor, noise_RW: Tensor) -> Tensor:
    """z + T * G in two rounded steps (a fused one would round differently from device to device)."""
    return noise_RW.mul_(temperature_R1).add_(values_RW)
