"""Attention of packed rows, each over the keys of its own sequence.

The query heads that share a key head are folded into query rows: one product serves them all. Sequences whose lanes lie
side by side share a call.

Shape key: T rows of the forward, J query rows of all calls, L lanes of a call, Q query rows of each of them, K keys,
C query, key and value heads side by side, N key heads, G query heads of a key head, D head size, S rows of a lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from services.engine.ops.plan import AttentionPlan
from services.engine.ops.tiles import Span, Together, together


@dataclass(frozen=True, slots=True)
class Heads:
    query: int
    kv: int
    dim: int

    @property
    def group(self) -> int:
        return self.query // self.kv


class Attention:
    """Built once a forward, called once a layer. All slots are of one pool."""

    def __init__(self, spans: Sequence[Span], rows: int, heads: Heads, plan: AttentionPlan, dtype: torch.dtype) -> None:
        self._heads = heads
        self._pool = spans[0].slot.pool
        self._calls: list[Call] = []
        row_J: list[int] = []  # the row of the forward that a query row is made from
        member_J: list[int] = []  # the query head of its group
        first_T = [0] * rows  # the first query row made from a row; rows of nobody borrow another's
        for call in together(spans, heads.group, plan):
            begin, position_J = len(row_J), []
            for tile in call.tiles:
                for row in range(tile.begin, tile.end):
                    first_T[row] = len(row_J) + (row - tile.begin) * heads.group
                made_from = tile.query_rows(heads.group, call.queries)
                row_J += made_from
                member_J += [query % heads.group for query in range(call.queries)]
                position_J += [tile.start + row - tile.begin for row in made_from]
            self._calls.append(Call(call, begin, torch.tensor(position_J), dtype))
        kv_N, member_G = torch.arange(heads.kv), torch.arange(heads.group)
        head_J = torch.tensor(row_J) * (heads.query + 2 * heads.kv) + torch.tensor(member_J)
        self._fold_NJ = (head_J + heads.group * kv_N[:, None]).flatten()
        query_TG = torch.tensor(first_T)[:, None] + member_G
        self._unfold_TNG = (query_TG[:, None] + len(row_J) * kv_N[:, None]).flatten()
        self._rows = spans[-1].end
        self._places = torch.cat([span.places(2 * heads.kv) for span in spans])

    def __call__(self, layer: int, qkv_TCD: Tensor) -> Tensor:
        """Write this layer's keys and values into the slots, and return what each row gathers, [T, N * G * D]."""
        query, kv, dim = self._heads.query, self._heads.kv, self._heads.dim
        kv_L2NSD = self._pool.kv[layer]
        kv_L2NSD.view(-1, dim).index_copy_(0, self._places, qkv_TCD[: self._rows, query:].reshape(-1, dim))
        q_NJD = qkv_TCD.view(-1, dim).index_select(0, self._fold_NJ).view(kv, -1, dim)
        outs = [call(q_NJD, kv_L2NSD) for call in self._calls]
        out_NJD = outs[0] if len(outs) == 1 else torch.cat(outs, 1)
        return out_NJD.view(-1, dim).index_select(0, self._unfold_TNG).view(len(qkv_TCD), -1)


class Call:
    """Attention of neighbouring lanes, as many query rows of each over as many keys."""

    def __init__(self, tiles: Together, begin: int, position_J: Tensor, dtype: torch.dtype) -> None:
        first, lanes = tiles.tiles[0].lane, len(tiles.tiles)
        self._keys = tiles.keys
        self._lanes = slice(first, first + lanes)
        self._queries = slice(begin, begin + len(position_J))
        hidden_JK = torch.arange(tiles.keys) > position_J[:, None]
        mask_JK = torch.zeros(hidden_JK.shape, dtype=dtype).masked_fill_(hidden_JK, float("-inf"))
        self._mask_L1QK = mask_JK.view(lanes, 1, tiles.queries, tiles.keys)

    def __call__(self, q_NJD: Tensor, kv_L2NSD: Tensor) -> Tensor:
        heads, _, dim = q_NJD.shape
        q_LNQD = q_NJD[:, self._queries].view(heads, len(self._mask_L1QK), -1, dim).transpose(0, 1)
        kv_L2NKD = kv_L2NSD[self._lanes, :, : self._keys]
        k_LNKD, v_LNKD = kv_L2NKD[:, :heads], kv_L2NKD[:, heads:]
        out_LNQD = scaled_dot_product_attention(q_LNQD, k_LNKD, v_LNKD, attn_mask=self._mask_L1QK, scale=dim**-0.5)
        return out_LNQD.transpose(0, 1).reshape(heads, -1, dim)
