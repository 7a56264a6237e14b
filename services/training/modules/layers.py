"""What both kinds of drafters are made of.

Shape key: S sequences, T rows of each, K keys, H hidden size, C query or key heads, N key heads, D head size,
P positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from services.engine.ops.attention import Heads
from services.engine.ops.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a decoder layer. `head_norms`: queries and keys are normed head by head."""

    hidden: int
    mlp: int
    heads: Heads
    eps: float
    rope: Rope
    head_norms: bool
    attention_bias: bool = False
    mlp_bias: bool = False


class RmsNorm(nn.Module):
    """In fp32, whatever comes in."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), self.weight.shape, self.weight, self._eps).to(x.dtype)


class Rotary:
    """Rotary positions, out of place; the table grows with the longest sequence."""

    def __init__(self, rope: Rope, dim: int) -> None:
        self._rope, self._dim = rope, dim
        self._cos_P1D, self._sin_P1D = rope.tables(1, dim, torch.float32)

    def __call__(self, x_STCD: Tensor, positions_ST: Tensor) -> Tensor:
        most = int(positions_ST.max()) + 1
        if most > len(self._cos_P1D):
            self._cos_P1D, self._sin_P1D = self._rope.tables(2 * most, self._dim, torch.float32)
        cos_ST1D, sin_ST1D = (table.to(x_STCD.device)[positions_ST] for table in (self._cos_P1D, self._sin_P1D))
        turned_STCD = x_STCD * cos_ST1D + x_STCD.roll(self._dim // 2, -1) * sin_ST1D
        return turned_STCD.to(x_STCD.dtype)


class Attention(nn.Module):
    """The projections; which rows see which keys is the drafter's own affair."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        heads, bias = sizes.heads, sizes.attention_bias
        self.heads = heads
        self.q_proj = nn.Linear(sizes.hidden, heads.query * heads.dim, bias=bias)
        self.k_proj = nn.Linear(sizes.hidden, heads.kv * heads.dim, bias=bias)
        self.v_proj = nn.Linear(sizes.hidden, heads.kv * heads.dim, bias=bias)
        self.o_proj = nn.Linear(heads.query * heads.dim, sizes.hidden, bias=bias)
        self.q_norm = RmsNorm(heads.dim, sizes.eps) if sizes.head_norms else nn.Identity()
        self.k_norm = RmsNorm(heads.dim, sizes.eps) if sizes.head_norms else nn.Identity()

    def queries(self, x_STH: Tensor, positions_ST: Tensor, rotary: Rotary) -> Tensor:
        q_STCD = self.q_norm(self.q_proj(x_STH).unflatten(-1, (self.heads.query, self.heads.dim)))
        return rotary(q_STCD, positions_ST)

    def keys(self, x_STH: Tensor, positions_ST: Tensor, rotary: Rotary) -> Tensor:
        k_STND = self.k_norm(self.k_proj(x_STH).unflatten(-1, (self.heads.kv, self.heads.dim)))
        return rotary(k_STND, positions_ST)

    def values(self, x_STH: Tensor) -> Tensor:
        v_STND: Tensor = self.v_proj(x_STH).unflatten(-1, (self.heads.kv, self.heads.dim))
        return v_STND


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden, sizes.mlp, bias=sizes.mlp_bias)
        self.up_proj = nn.Linear(sizes.hidden, sizes.mlp, bias=sizes.mlp_bias)
        self.down_proj = nn.Linear(sizes.mlp, sizes.hidden, bias=sizes.mlp_bias)

    def forward(self, x_STH: Tensor) -> Tensor:
        out_STH: Tensor = self.down_proj(silu(self.gate_proj(x_STH)) * self.up_proj(x_STH))
        return out_STH


def attend(q_STCD: Tensor, k_SKND: Tensor, v_SKND: Tensor, seen_STK: Tensor) -> Tensor:
    """[S, T, C * D]; every row has to see a key."""
    group = q_STCD.shape[2] // k_SKND.shape[2]
    q_SCTD, k_SNKD, v_SNKD = (x.transpose(1, 2) for x in (q_STCD, k_SKND, v_SKND))
    k_SCKD, v_SCKD = (x.repeat_interleave(group, 1) for x in (k_SNKD, v_SNKD))
    out_SCTD = scaled_dot_product_attention(q_SCTD, k_SCKD, v_SCKD, attn_mask=seen_STK[:, None])
    return out_SCTD.transpose(1, 2).flatten(2)
