"""A loaded decoder, and its forward.

Shape key: T rows of the forward, H hidden size, C query, key and value heads side by side, N query and key heads,
D head size, V vocabulary of the tokenizer, P positions.
"""

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

from services.engine.models.trunk import Trunk
from services.engine.ops.attention import Attention, Heads
from services.engine.ops.linear import Linear
from services.engine.ops.plan import Table
from services.engine.ops.pointwise import HeadNorm, Norm, SwiGlu, rotate_
from services.engine.pack import Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    attention_norm: Norm
    qkv: Linear
    head_norm: HeadNorm | None
    out: Linear
    mlp_norm: Norm
    gate_up: Linear
    swiglu: SwiGlu
    down: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    heads: Heads
    table: Table
    embedding_VH: Tensor
    layers: list[Layer]
    norm: Norm
    head: Linear
    cos_P1D: Tensor
    sin_P1D: Tensor

    @property
    def vocab_size(self) -> int:
        return len(self.embedding_VH)

    @property
    def context(self) -> int:
        return len(self.cos_P1D)

    def __call__(self, packed: Packed, taps: Collection[int]) -> Trunk:
        heads, x_TH = self.heads, self.embedding_VH[packed.ids_T]
        attention = Attention(packed.spans, len(x_TH), heads, self.table.attention, x_TH.dtype)
        cos_T1D, sin_T1D = self.cos_P1D[packed.positions_T], self.sin_P1D[packed.positions_T]
        tapped = {}
        for index, layer in enumerate(self.layers):
            qkv_TCD = layer.qkv(layer.attention_norm(x_TH)).view(len(x_TH), -1, heads.dim)
            qk_TND = qkv_TCD[:, : heads.query + heads.kv]
            if layer.head_norm:
                qk_TND.copy_(layer.head_norm(qk_TND))
            rotate_(qk_TND, cos_T1D, sin_T1D)
            x_TH = layer.out(attention(index, qkv_TCD)).add_(x_TH)
            x_TH = layer.down(layer.swiglu(layer.gate_up(layer.mlp_norm(x_TH)))).add_(x_TH)
            if index in taps:
                tapped[index] = x_TH
        return Trunk(self.norm(x_TH), tapped)
