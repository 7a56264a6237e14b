"""Attention of packed rows, each over the keys of its own sequence.

The query heads that share a key head are folded into query rows: one product serves them all.

Shape key: T rows of the forward, C query, key and value heads side by side, N key heads, G query heads of a key head,
D head size, Q folded and padded query rows of all tiles, K keys.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from services.engine.cache.slots import Slot
from services.engine.ops.plan import AttentionPlan


@dataclass(frozen=True, slots=True)
class Heads:
    query: int
    kv: int
    dim: int

    @property
    def group(self) -> int:
        return self.query // self.kv


@dataclass(frozen=True, slots=True)
class Span:
    """Rows begin..end of a forward belong to `slot`, at its positions from `slot.length` on."""

    slot: Slot
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Tile:
    """One call: query rows begin..end over the first `keys` keys of `slot`."""

    slot: Slot
    begin: int
    end: int
    keys: int


class Attention:
    """Built once a forward, called once a layer."""

    def __init__(self, spans: Sequence[Span], rows: int, heads: Heads, plan: AttentionPlan, dtype: torch.dtype) -> None:
        self._spans = spans
        self._heads = heads
        self._tiles: list[Tile] = []
        row_Q: list[int] = []  # which row of the forward a query row is made from
        member_Q: list[int] = []  # which query head of its group
        position_Q: list[int] = []  # the last key it may see
        first_T = [0] * rows  # where the query rows of a row begin; padding rows borrow those of the first
        group, each = heads.group, max(plan.most // heads.group, 1)
        for span in spans:
            for begin, end in _pieces(span.begin, span.end, each):
                queries = range(_up((end - begin) * group, plan.queries))
                at = len(row_Q)
                first_T[begin:end] = range(at, at + (end - begin) * group, group)
                tile_rows = [min(begin + query // group, end - 1) for query in queries]
                row_Q += tile_rows
                member_Q += [query % group for query in queries]
                position_Q += [span.slot.length + row - span.begin for row in tile_rows]
                self._tiles.append(Tile(span.slot, at, len(row_Q), _up(position_Q[-1] + 1, plan.keys)))
        kv_N, member_G = torch.arange(heads.kv), torch.arange(group)
        query_Q = torch.tensor(row_Q) * (heads.query + 2 * heads.kv) + torch.tensor(member_Q)
        self._fold_NQ = (query_Q + group * kv_N[:, None]).flatten()
        row_TG = torch.tensor(first_T)[:, None] + member_G
        self._unfold_TNG = (row_TG[:, None] * heads.kv + kv_N[:, None]).flatten()
        hidden_QK = torch.arange(max(tile.keys for tile in self._tiles)) > torch.tensor(position_Q)[:, None]
        self._mask_QK = torch.zeros(hidden_QK.shape, dtype=dtype).masked_fill_(hidden_QK, float("-inf"))

    def __call__(self, layer: int, qkv_TCD: Tensor) -> Tensor:
        """Write this layer's keys and values into the slots, and return what each row gathers, [T, N * G * D]."""
        heads = self._heads
        for span in self._spans:
            start = span.slot.length
            rows_S2ND = span.slot.kv[layer][start : start + span.end - span.begin]
            rows_S2ND.copy_(qkv_TCD[span.begin : span.end, heads.query :])
        q_1NQD = qkv_TCD.view(-1, heads.dim).index_select(0, self._fold_NQ).view(1, heads.kv, -1, heads.dim)
        tiles = [self._attend(layer, tile, q_1NQD).transpose(1, 2) for tile in self._tiles]
        out_1QND = tiles[0] if len(tiles) == 1 else torch.cat(tiles, 1)
        return out_1QND.reshape(-1, heads.dim).index_select(0, self._unfold_TNG).view(len(qkv_TCD), -1)

    def _attend(self, layer: int, tile: Tile, q_1NQD: Tensor) -> Tensor:
        return scaled_dot_product_attention(
            q_1NQD[:, :, tile.begin : tile.end],
            tile.slot.k[layer][:, :, : tile.keys],
            tile.slot.v[layer][:, :, : tile.keys],
            attn_mask=self._mask_QK[tile.begin : tile.end, : tile.keys],
            scale=self._heads.dim**-0.5,
        )


def _pieces(begin: int, end: int, size: int) -> Iterable[tuple[int, int]]:
    return ((at, min(at + size, end)) for at in range(begin, end, size))


def _up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
