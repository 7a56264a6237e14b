"""Linears of a checkpoint that read the same input, stacked into one.

Shape key: I and O width of a row before and after, all parts together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from services.engine.ops.linear import Linear
from services.engine.ops.plan import Operator, Table
from services.engine.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """`parts` maps a module's name to its rows.

    Each part's rows are padded with zeros to a multiple of `rows_to`, and the width to one of `width_to`, so that an
    elementwise operator between two linears sees whole vectors."""

    parts: Mapping[str, int]
    width: int
    bias: bool = False
    rows_to: int = 1
    width_to: int = 1

    def tensors(self, prefix: str) -> dict[str, tuple[int, ...]]:
        weights: dict[str, tuple[int, ...]] = {
            f"{prefix}{part}.weight": (n, self.width) for part, n in self.parts.items()
        }
        biases = {f"{prefix}{part}.bias": (rows,) for part, rows in self.parts.items()} if self.bias else {}
        return weights | biases

    @property
    def operator(self) -> Operator:
        rows = sum(rows + self._lacking(rows) for rows in self.parts.values())
        return Operator("linear", self.width + -self.width % self.width_to, rows, self.bias)

    def read(self, checkpoint: Checkpoint, prefix: str, table: Table, dtype: torch.dtype) -> Linear:
        weight_OI = self._stack(checkpoint, prefix, "weight", dtype)
        weight_OI = pad(weight_OI, (0, -self.width % self.width_to))
        bias_O = self._stack(checkpoint, prefix, "bias", dtype) if self.bias else None
        return Linear(weight_OI, bias_O, table[self.operator])

    def _stack(self, checkpoint: Checkpoint, prefix: str, kind: str, dtype: torch.dtype) -> Tensor:
        tensors = [checkpoint.read(f"{prefix}{part}.{kind}", dtype) for part in self.parts]
        ends = [(0, 0) * (tensor.dim() - 1) + (0, self._lacking(len(tensor))) for tensor in tensors]
        return torch.cat([pad(tensor, end) for tensor, end in zip(tensors, ends, strict=True)])

    def _lacking(self, rows: int) -> int:
        return -rows % self.rows_to
