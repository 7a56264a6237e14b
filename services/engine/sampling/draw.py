"""The token of every row: argmax(z + T * G) over the ids that the filters keep.

A row's token is a function of that row, its parameters and its position; rows share a call only to save time.

Shape key: R rows, V vocabulary, W window of leading ids."""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.engine.sampling.filter import Filters
from services.engine.sampling.noise import gumbel_of, row_key
from services.engine.sampling.order import GROWTH, first_largest, leading
from services.engine.sampling.params import SamplingParams
from services.engine.sampling.tiles import tiles

_FIRST_WINDOW = 128  # enough for 19 of 20 rows of real text at T = 0.8, top-p 0.95


def draw(rows_RV: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> list[int]:
    """`rows_RV` after the rules; `positions[r]` is the absolute position of the token that row r draws."""
    greedy = [r for r, p in enumerate(params) if p.greedy]
    filtered = [r for r, p in enumerate(params) if not p.greedy and p.filtered]
    free = [r for r, p in enumerate(params) if not p.greedy and not p.filtered]
    tokens_R = torch.empty(len(params), dtype=torch.int64, device=rows_RV.device)
    for chosen, token_of in ((greedy, _greedy), (filtered, _filtered), (free, _free)):
        if chosen:
            some_RV = rows_RV if len(chosen) == len(rows_RV) else rows_RV[chosen]
            tokens_R[chosen] = token_of(some_RV, [params[r] for r in chosen], [positions[r] for r in chosen])
    return tokens_R.tolist()


def _greedy(rows_RV: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> Tensor:
    return first_largest(rows_RV)


def _free(rows_RV: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> Tensor:
    """Every id is kept, so every id gets its noise."""
    keys = _keys(params, positions)
    temperature_R1 = torch.tensor([[p.temperature] for p in params], dtype=torch.float32, device=rows_RV.device)
    ids_V = torch.arange(rows_RV.shape[1], dtype=torch.int32, device=rows_RV.device)
    return torch.cat(
        [
            first_largest(_noisy(rows_RV[tile], temperature_R1[tile], gumbel_of(keys[tile], ids_V)))
            for tile in tiles(rows_RV)
        ]
    )


def _filtered(rows_RV: Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> Tensor:
    return _from_window(rows_RV, Filters.of(rows_RV, params), _keys(params, positions), _FIRST_WINDOW)


def _from_window(rows_RV: Tensor, filters: Filters, keys: Sequence[int], width: int) -> Tensor:
    """Draw from the leading ids; rows whose filters reach beyond them try again with a wider window."""
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
        tokens_R[open_R] = _from_window(rows_RV[open_R], filters.of_rows(open_R), more, width * GROWTH)
    return tokens_R


def _keys(params: Sequence[SamplingParams], positions: Sequence[int]) -> list[int]:
    return [row_key(p.seed, p.choice, position) for p, position in zip(params, positions, strict=True)]


def _noisy(values_RW: Tensor, temperature_R1: Tensor, noise_RW: Tensor) -> Tensor:
    """z + T * G in two rounded steps (a fused one would round differently from device to device)."""
    return noise_RW.mul_(temperature_R1).add_(values_RW)
