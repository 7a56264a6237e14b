"""What drafters' layers are made of. Weights are laid out for the kernels of the target's, calls are not padded.

Shape key: T rows, K keys, H hidden size, C query heads, N key heads, G query heads of a key head, X query rows made of
them, D head size, E rotated part of it, P positions.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from services.engine.ops.linear import Linear, can_pack
from services.engine.ops.plan import RowPlan, Table
from services.engine.ops.pointwise import Norm, SwiGlu, rotate_
from services.engine.ops.rope import Rope
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.fused import Fused

FREE = RowPlan(most=2**30)


def free_table(dtype: torch.dtype) -> Table:
    """A plan for any operator: all rows in one call."""
    plan = RowPlan(most=FREE.most, packed=can_pack(dtype))
    return Table(defaultdict(lambda: plan))


def free_linear(weight_OI: Tensor, bias_O: Tensor | None = None) -> Linear:
    return Linear(weight_OI, bias_O, RowPlan(most=FREE.most, packed=can_pack(weight_OI.dtype)))


def read_norm(checkpoint: Checkpoint, name: str, eps: float, dtype: torch.dtype, *, one_plus: bool = False) -> Norm:
    """`one_plus`: the file holds what is added to 1, as Gemma's and Qwen3-Next's do; the sum is made in fp32."""
    weight_H = checkpoint.read(name, torch.float32)
    return Norm((weight_H + 1 if one_plus else weight_H).to(dtype), eps, FREE)


class Mlp:
    """SwiGLU. Tensors gate_proj and up_proj [F, H], down_proj [H, F]."""

    def __init__(self, gate_up: Fused, down: Fused, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> None:
        table = free_table(dtype)
        self._gate_up = gate_up.read(checkpoint, prefix, table, dtype)
        self._down = down.read(checkpoint, prefix, table, dtype)
        self._swiglu = SwiGlu(FREE)

    def __call__(self, x_TH: Tensor) -> Tensor:
        return self._down(self._swiglu(self._gate_up(x_TH)))


class HeadNorm:
    """Root-mean-square normalisation of each head over its own width, every head with a weight of its own [C, D]."""

    def __init__(self, weight_CD: Tensor, eps: float) -> None:
        self._weight_CD = weight_CD
        self._eps = eps

    def __call__(self, x_TCD: Tensor) -> Tensor:
        return rms_norm(x_TCD, x_TCD.shape[-1:], None, self._eps).mul_(self._weight_CD)


class Rotary:
    """Cosines and sines of absolute positions; the table grows with the longest sequence."""

    def __init__(self, rope: Rope, dim: int, dtype: torch.dtype) -> None:
        self._rope, self._dim, self._dtype = rope, dim, dtype
        self._cos_P1E, self._sin_P1E = rope.tables(1, dim, dtype)

    def rotate_(self, x_TND: Tensor, positions_T: Tensor, most: int) -> None:
        """In place, the first E of D. `most`: no position reaches it."""
        if most > len(self._cos_P1E):
            self._cos_P1E, self._sin_P1E = self._rope.tables(2 * most, self._dim, self._dtype)
        rotate_(x_TND[..., : self._dim], self._cos_P1E[positions_T], self._sin_P1E[positions_T])


def ranges(starts: Sequence[int], counts: Sequence[int]) -> Tensor:
    """`counts[i]` positions from `starts[i]` on, one sequence after another [T]."""
    return torch.cat([torch.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])


def visible(
    queries: int, count: int, keys: int, held: int, *, window: int | None = None, causal: bool = False
) -> Tensor | None:
    """Which of `held` keys from position `keys` on each of `count` rows from position `queries` on sees [T, K].

    A window counts the row itself and reaches as far ahead as back, unless `causal`. None: all are seen."""
    ahead_TK = (keys + torch.arange(held)) - (queries + torch.arange(count))[:, None]
    seen_TK = torch.ones_like(ahead_TK, dtype=torch.bool)
    if causal:
        seen_TK &= ahead_TK <= 0
    if window is not None:
        seen_TK &= ahead_TK.abs() < window
    return None if seen_TK.all() else seen_TK


def attend(q_TCD: Tensor, k_NKD: Tensor, v_NKD: Tensor, visible_TK: Tensor | None) -> Tensor:
    """Attention of one sequence's rows [T, C * D]. The query heads that share a key head are folded into its rows."""
    (count, _, dim), heads = q_TCD.shape, len(k_NKD)
    q_NGTD = q_TCD.view(count, heads, -1, dim).permute(1, 2, 0, 3)
    group = q_NGTD.shape[1]
    # Of four dimensions: with three, the fused kernel is not taken, and all is five times as slow.
    mask = None if visible_TK is None else visible_TK.repeat(group, 1)[None, None]
    q_1NXD = q_NGTD.reshape(1, heads, group * count, dim)
    out_1NXD = scaled_dot_product_attention(q_1NXD, k_NKD[None], v_NKD[None], attn_mask=mask, scale=dim**-0.5)
    return out_1NXD.view(heads, group, count, dim).permute(2, 0, 1, 3).reshape(count, -1)
