"""From a drafter's hidden states to logits, over the ids that it may propose.

Shape key: T rows, H hidden size, D ids that may be drafted, V ids that the target knows.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from services.drafter.models.layers import free_linear
from services.engine.ops.linear import Linear


class Head:
    """`ids_D` holds the target's id of each column, ascending; None: column d is id d, and D = V."""

    def __init__(self, linear: Linear, ids_D: Tensor | None, vocab_size: int) -> None:
        self._linear = linear
        self.ids_D = ids_D
        self.vocab_size = vocab_size

    @classmethod
    def of(cls, weight_DH: Tensor, ids: Sequence[int] | None, vocab_size: int) -> Self:
        """`ids[d]` is the target's id of row d, each once; None: row d is id d. Rows from `vocab_size` on are padding:
        no tokenizer knows them, and they are never drafted."""
        if ids is None:
            return cls(free_linear(weight_DH[:vocab_size].contiguous()), None, vocab_size)
        ids_D, order_D = torch.tensor(ids).sort()
        kept_D = ids_D < vocab_size
        return cls(free_linear(weight_DH[order_D[kept_D]]), ids_D[kept_D], vocab_size)

    def __call__(self, x_TH: Tensor) -> Tensor:
        """fp32 [T, D]."""
        return self._linear(x_TH).float()

    def target_ids(self, columns: Tensor) -> Tensor:
        return columns if self.ids_D is None else self.ids_D[columns]
