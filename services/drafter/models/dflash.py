"""The layers of a DFlash drafter (arXiv 2602.06036): rows of a block look at the target's own states.

A context feature is one vector a position, made of the target's taps; keys and values of every layer are made of it
alone, so they are remembered and never computed again. A block is the anchor and masks behind it; the row at a mask's
position gives the token of that position.

Shape key: S sequences, B rows of a block, T rows of all blocks or positions, X taps side by side, H hidden size,
L layers, N key heads, C query and key heads, D head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.drafter.checkpoints.tensors import (
    ATTENTION_CONV,
    ATTENTION_NORM,
    KEY_NORM,
    MLP_CONV,
    MLP_NORM,
    QUERY_NORM,
    Plan,
)
from services.drafter.models.conv import Conv, bare
from services.drafter.models.keys import Past
from services.drafter.models.layers import HeadNorm, Mlp, Rotary, attend, free_table, ranges, read_norm, visible
from services.engine.weights.checkpoint import Checkpoint

Memory = list[Past]
"""What one sequence's layers remember."""


class DFlashBody:
    def __init__(self, plan: Plan, checkpoint: Checkpoint, dtype: torch.dtype) -> None:
        recipe, body = plan.recipe, plan.recipe.body
        table = free_table(dtype)
        self._recipe, self._dtype = recipe, dtype
        self._features = plan.features.read(checkpoint, "", table, dtype)
        self._features_norm = read_norm(checkpoint, plan.context_norm, body.eps, dtype)
        self._context = plan.context.read(checkpoint, "", table, dtype)
        self._rotary = Rotary(body.rope, body.heads.dim, dtype)
        self._layers = [Layer(plan, checkpoint, index, self._rotary, dtype) for index in range(body.layers)]
        self._key_norm = HeadNorm(torch.cat([layer.key_weight_ND for layer in self._layers]), body.eps)
        self._norm = read_norm(checkpoint, plan.final_norm, body.eps, dtype)

    def memory(self) -> Memory:
        """Of a new sequence."""
        heads, spare = self._recipe.body.heads, self._recipe.block_size
        return [Past(heads.kv, heads.dim, self._dtype, window=each.window, spare=spare) for each in self._recipe.reach]

    def absorb(self, taps_TX: Tensor, memories: Sequence[Memory], counts: Sequence[int]) -> None:
        """Remember the next `counts[i]` positions of sequence i; their taps come one sequence after another."""
        heads, layers = self._recipe.body.heads, self._recipe.body.layers
        features_TH = self._features_norm(self._features(taps_TX))
        k_TLND, v_TLND = self._context(features_TH).view(-1, layers, 2, heads.kv, heads.dim).unbind(2)
        k_TXD = self._key_norm(k_TLND.flatten(1, 2))
        ends = [memory[0].end + count for memory, count in zip(memories, counts, strict=True)]
        starts = [memory[0].end for memory in memories]
        self._rotary.rotate_(k_TXD, ranges(starts, counts), max(ends))
        k_TLND = k_TXD.view(v_TLND.shape)
        sizes = list(counts)
        split = zip(memories, k_TLND.split_with_sizes(sizes), v_TLND.split_with_sizes(sizes), strict=True)
        for memory, k_KLND, v_KLND in split:
            for layer, past in enumerate(memory):
                past.add(k_KLND[:, layer], v_KLND[:, layer])

    def __call__(self, x_TH: Tensor, memories: Sequence[Memory]) -> Tensor:
        """The states [T, H] behind the embedded blocks of as many sequences, B rows each, after the final norm."""
        size = len(x_TH) // len(memories)
        starts = [memory[0].end for memory in memories]
        positions_T = ranges(starts, [size] * len(memories))
        for index, layer in enumerate(self._layers):
            x_TH = layer(x_TH, [memory[index] for memory in memories], positions_T, size)
        return self._norm(x_TH)


class Layer:
    def __init__(self, plan: Plan, checkpoint: Checkpoint, index: int, rotary: Rotary, dtype: torch.dtype) -> None:
        body, prefix, table = plan.recipe.body, plan.layer(index), free_table(dtype)
        self._heads, self._reach, self._rotary = body.heads, plan.recipe.reach[index], rotary
        self._attention_norm = read_norm(checkpoint, prefix + ATTENTION_NORM, body.eps, dtype)
        self._mlp_norm = read_norm(checkpoint, prefix + MLP_NORM, body.eps, dtype)
        self._qkv = plan.qkv.read(checkpoint, prefix, table, dtype)
        self._out = plan.out.read(checkpoint, prefix, table, dtype)
        self._mlp = Mlp(plan.gate_up, plan.down, checkpoint, prefix, dtype)
        query_D, key_D = (checkpoint.read(prefix + name, dtype) for name in (QUERY_NORM, KEY_NORM))
        self.key_weight_ND = key_D.expand(body.heads.kv, -1)
        weight_CD = torch.cat([query_D.expand(body.heads.query, -1), self.key_weight_ND])
        self._head_norm = HeadNorm(weight_CD, body.eps)
        with_conv = plan.recipe.conv is not None
        self._around_attention = Conv(plan, checkpoint, prefix + ATTENTION_CONV, dtype) if with_conv else bare
        self._around_mlp = Conv(plan, checkpoint, prefix + MLP_CONV, dtype) if with_conv else bare

    def __call__(self, x_TH: Tensor, pasts: Sequence[Past], positions_T: Tensor, size: int) -> Tensor:
        def attention(u_TH: Tensor) -> Tensor:
            return self._attention(u_TH, pasts, positions_T, size)

        x_TH = x_TH + self._around_attention(self._attention_norm(x_TH), attention, size)
        return x_TH + self._around_mlp(self._mlp_norm(x_TH), self._mlp, size)

    def _attention(self, u_TH: Tensor, pasts: Sequence[Past], positions_T: Tensor, size: int) -> Tensor:
        query, kv = self._heads.query, self._heads.kv
        qk_TCD, v_TND = self._qkv(u_TH).view(len(u_TH), -1, self._heads.dim).split_with_sizes([query + kv, kv], 1)
        qk_TCD = self._head_norm(qk_TCD)
        self._rotary.rotate_(qk_TCD, positions_T, max(past.end for past in pasts) + size)
        parts = *qk_TCD.split_with_sizes([query, kv], 1), v_TND
        blocks = zip(pasts, *(torch.split(part, size) for part in parts), strict=True)
        return self._out(torch.cat([self._attend(*block) for block in blocks]))

    def _attend(self, past: Past, q_BCD: Tensor, k_BND: Tensor, v_BND: Tensor) -> Tensor:
        """The block's own keys lie behind the sequence's only while its rows look at them."""
        start, window = past.end, self._reach.window
        past.add(k_BND, v_BND)
        k_NKD, v_NKD, first = past.since(0 if window is None else start - window + 1)
        mask = visible(start, len(q_BCD), first, k_NKD.shape[1], window=window, causal=self._reach.causal)
        out_BX = attend(q_BCD, k_NKD, v_NKD, mask)
        past.crop(start)
        return out_BX
