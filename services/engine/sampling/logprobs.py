"""Log-probabilities that a response reports: the log-softmax of the raw row, before rules and temperature.

Shape key: R rows, V vocabulary, W window of leading ids."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.sampling.mass import UNIT, total
from services.engine.sampling.order import leading


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Of a drawn token, and of the `top` ids of its row in order."""

    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(rows_RV: Tensor, tokens: Sequence[int], tops: Sequence[int]) -> list[TokenLogprobs]:
    """For each row its drawn token and how many top ids are wanted."""
    if not tokens:
        return []
    largest_R1 = rows_RV.amax(1, keepdim=True)
    total_R = total(rows_RV, largest_R1, torch.ones_like(largest_R1))[:, 0].tolist()
    drawn_R = rows_RV.gather(1, torch.tensor(tokens, device=rows_RV.device)[:, None])[:, 0].tolist()
    ids_RW, values_RW = _leading(rows_RV, max(tops))
    rows = zip(largest_R1[:, 0].tolist(), total_R, drawn_R, ids_RW.tolist(), values_RW.tolist(), tops, strict=True)
    result = []
    for largest, weight, drawn, ids, values, top in rows:
        # In Python's doubles, so that ids keep the order of their logits even where fp32 could not tell them apart.
        log_total = math.log(weight * UNIT)
        alternatives = zip(ids[:top], values[:top], strict=True)
        result.append(
            TokenLogprobs(
                drawn - largest - log_total,
                tuple((id, value - largest - log_total) for id, value in alternatives),
            )
        )
    return result


def _leading(rows_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first `count` ids of each row's order and their values, through windows that grow past ties."""
    vocab_size = rows_RV.shape[1]
    count = min(count, vocab_size)
    ids_RW = torch.empty(len(rows_RV), count, dtype=torch.int64, device=rows_RV.device)
    values_RW = torch.empty(len(rows_RV), count, dtype=rows_RV.dtype, device=rows_RV.device)
    open_R = torch.arange(len(rows_RV), device=rows_RV.device)
    width = 2 * count
    while count and len(open_R):
        window = leading(rows_RV[open_R], min(width, vocab_size))
        settled_R = window.whole_R >= count
        ids_RW[open_R[settled_R]] = window.ids_RW[settled_R, :count]
        values_RW[open_R[settled_R]] = window.values_RW[settled_R, :count]
        open_R, width = open_R[~settled_R], width * 8
    return ids_RW, values_RW
