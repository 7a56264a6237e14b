"""How a draft token is drawn from a row of draft logits.

- `argmax`: the likeliest id, whatever the temperature.
- `independent`: from the row's own distribution, with noise that has nothing to do with the target's.
- `coupled`: with the very noise that the target will draw this position with, so that like rows draw alike (Daliri,
  Musco, Suresh: Coupling without communication, 2024).

The target draws each token itself and compares, so none of them can change what it answers. At a temperature that the
target takes for greedy all three are `argmax`. Of equal values the lowest id is drawn.

Shape key: R rows, D ids that may be drafted, V ids that the target knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from services.drafter.interface import Opening
from services.drafter.models.head import Head
from services.engine.sampling.draw import draw as draw_as_the_target
from services.engine.sampling.order import first_largest
from services.engine.sampling.params import SamplingParams

Draws = Literal["argmax", "independent", "coupled"]

_OWN = 0x5DEECE66D_1234567  # turns a seed into one whose noise the target never uses for it


@dataclass(frozen=True, slots=True)
class Drawn:
    """One target id a row, and its probability under the row's softmax."""

    ids: list[int]
    confidences: list[float]


def sampling(opening: Opening, draws: Draws) -> SamplingParams:
    """How the drafts of a sequence are drawn. A sequence without a seed is drawn for as if it were 0."""
    seed = opening.seed or 0
    return SamplingParams(
        temperature=0.0 if draws == "argmax" else opening.temperature,
        top_k=opening.top_k,
        top_p=opening.top_p,
        min_p=opening.min_p,
        seed=seed ^ _OWN if draws == "independent" else seed,
        choice=opening.choice,
    )


def draw(rows_RD: Tensor, head: Head, params: Sequence[SamplingParams], positions: Sequence[int]) -> Drawn:
    """`rows_RD` fp32 logits of the head; `positions[r]` the absolute position of the token that row r proposes."""
    if all(each.greedy for each in params):
        columns_R = first_largest(rows_RD)
        ids_R = head.target_ids(columns_R)
    elif head.ids_D is None:
        columns_R = ids_R = torch.tensor(draw_as_the_target(rows_RD, params, positions))
    else:
        rows_RV = rows_RD.new_full((len(rows_RD), head.vocab_size), -torch.inf)
        rows_RV[:, head.ids_D] = rows_RD
        ids_R = torch.tensor(draw_as_the_target(rows_RV, params, positions))
        columns_R = torch.searchsorted(head.ids_D, ids_R)
    logprobs_R = rows_RD.gather(1, columns_R[:, None])[:, 0] - rows_RD.logsumexp(1)
    return Drawn(ids_R.tolist(), logprobs_R.exp_().tolist())
