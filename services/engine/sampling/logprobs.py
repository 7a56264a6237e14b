"""Log-probabilities that a response reports: the log-softmax of the raw row, before rules and temperature.

Shape key: R rows, V vocabulary, K top ids wanted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.sampling.mass import UNIT, total
from services.engine.sampling.order import top


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
    ids_RK, values_RK = top(rows_RV, max(tops))
    rows = zip(largest_R1[:, 0].tolist(), total_R, drawn_R, ids_RK.tolist(), values_RK.tolist(), tops, strict=True)
    return [_of_row(*row) for row in rows]


def _of_row(
    largest: float, weight: int, drawn: float, ids: list[int], values: list[float], top_count: int
) -> TokenLogprobs:
    """In Python's doubles, so that ids keep the order of their logits even where fp32 could not tell them apart."""
    log_total = math.log(weight * UNIT) if weight > 0 else math.nan  # a row of NaN is its own trouble only
    alternatives = [(id, value - largest - log_total) for id, value in zip(ids, values, strict=True)]
    return TokenLogprobs(drawn - largest - log_total, tuple(alternatives[:top_count]))
