"""A multi-token-prediction module: from a target's state and the id that came next to the state one token ahead.

    u = fc([norm_e(embed(x[t + 1])); norm_h(h[t])]),  out = norm(layer(u)),  head(out) predicts x[t + 2]

(Gloeckle et al.: Better & Faster Large Language Models via Multi-token Prediction, 2024; DeepSeek-V3 Technical Report,
2.2; the tensors are Qwen3-Next's.) Further tokens come from running it on its own `out`.

Shape key: T rows of all sequences, H hidden size, C query and key heads side by side, N key heads, D head size, V rows
of the embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.drafter.checkpoints import mtp_tensors as tensors
from services.drafter.checkpoints.mtp import PREFIX, Experts, MtpRecipe
from services.drafter.models.experts import SparseMlp
from services.drafter.models.keys import Past
from services.drafter.models.layers import HeadNorm, Mlp, Rotary, attend, free_table, ranges, read_norm, visible
from services.engine.ops.pointwise import Norm
from services.engine.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one sequence in a pass of one layer: they join `past`, and see what it holds and each other.

    The first has position `start`, and `ids` has one id a row: the one that follows the state in `hidden_TH`."""

    past: Past
    start: int
    ids: Sequence[int]
    hidden_TH: Tensor


class MtpModel:
    def __init__(self, recipe: MtpRecipe, checkpoint: Checkpoint, embedding_VH: Tensor, dtype: torch.dtype) -> None:
        tensors.check(recipe, checkpoint)
        self.recipe, self.dtype = recipe, dtype
        self._embedding_VH = embedding_VH
        self._fc = tensors.fc(recipe).read(checkpoint, PREFIX, free_table(dtype), dtype)
        self._norm_embedding, self._norm_hidden, self._norm = (
            _norm(recipe, checkpoint, f"{PREFIX}{norm}", dtype) for norm in tensors.NORMS
        )
        self._rotary = Rotary(recipe.rope, recipe.rotated, dtype)
        self._layers = [
            Layer(recipe, self._rotary, checkpoint, tensors.layer_prefix(layer), dtype)
            for layer in range(recipe.layers)
        ]

    @property
    def layers(self) -> int:
        return len(self._layers)

    def pasts(self) -> list[Past]:
        """One for each layer of a new sequence."""
        heads = self.recipe.heads
        return [Past(heads.kv, heads.dim, self.dtype) for _ in self._layers]

    def __call__(self, layer: int, batch: Sequence[Rows]) -> list[Tensor]:
        """States [T, H] after the module's norm for each sequence's rows."""
        ids_T = torch.tensor([id for rows in batch for id in rows.ids])
        embedded_TH = self._norm_embedding(self._embedding_VH[ids_T])
        hidden_TH = self._norm_hidden(torch.cat([rows.hidden_TH for rows in batch]))
        halves = (hidden_TH, embedded_TH) if self.recipe.hidden_first else (embedded_TH, hidden_TH)
        x_TH = self._norm(self._layers[layer](self._fc(torch.cat(halves, -1)), batch))
        return list(torch.split(x_TH, [len(rows.ids) for rows in batch]))


class Layer:
    """Full attention and an MLP, each after a norm and around a residual stream."""

    def __init__(
        self, recipe: MtpRecipe, rotary: Rotary, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype
    ) -> None:
        table = free_table(dtype)
        self._heads, self._gated, self._rotary = recipe.heads, recipe.gated, rotary
        self._attention_norm, self._mlp_norm = (
            _norm(recipe, checkpoint, f"{prefix}{norm}", dtype) for norm in tensors.LAYER_NORMS
        )
        self._qkv = tensors.qkv(recipe).read(checkpoint, prefix, table, dtype)
        self._head_norm = _head_norm(recipe, checkpoint, prefix, dtype) if recipe.head_norms else None
        self._out = tensors.out(recipe).read(checkpoint, prefix, table, dtype)
        self._mlp = _mlp(recipe, checkpoint, f"{prefix}mlp.", dtype)

    def __call__(self, x_TH: Tensor, batch: Sequence[Rows]) -> Tensor:
        x_TH = self._out(self._attend(self._attention_norm(x_TH), batch)).add_(x_TH)
        return self._mlp(self._mlp_norm(x_TH)).add_(x_TH)

    def _attend(self, x_TH: Tensor, batch: Sequence[Rows]) -> Tensor:
        qk_TCD, v_TND, gate_TX = self._project(x_TH)
        if self._head_norm is not None:
            qk_TCD = self._head_norm(qk_TCD)
        starts, counts = [rows.start for rows in batch], [len(rows.ids) for rows in batch]
        most = max(start + count for start, count in zip(starts, counts, strict=True))
        self._rotary.rotate_(qk_TCD, ranges(starts, counts), most)
        parts = zip(batch, counts, torch.split(qk_TCD, counts), torch.split(v_TND, counts), strict=True)
        gathered_TX = torch.cat([self._gather(rows.past, count, qk, v) for rows, count, qk, v in parts])
        return gathered_TX if gate_TX is None else gathered_TX.mul_(gate_TX.sigmoid())

    def _project(self, x_TH: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries and keys, values, and what the queries' gates let through before the sigmoid."""
        heads, rows = self._heads, len(x_TH)
        qkv_TXD = self._qkv(x_TH).view(rows, -1, heads.dim)
        v_TND = qkv_TXD[:, -heads.kv :]
        if not self._gated:
            return qkv_TXD[:, : -heads.kv], v_TND, None
        both_TC2D = qkv_TXD[:, : 2 * heads.query].view(rows, heads.query, 2, heads.dim)
        k_TND = qkv_TXD[:, 2 * heads.query : -heads.kv]
        return torch.cat((both_TC2D[:, :, 0], k_TND), 1), v_TND, both_TC2D[:, :, 1].reshape(rows, -1)

    def _gather(self, past: Past, count: int, qk_TCD: Tensor, v_TND: Tensor) -> Tensor:
        first = past.end
        past.add(qk_TCD[:, self._heads.query :], v_TND)
        k_NKD, v_NKD, _ = past.since(0)
        seen_TK = visible(first, count, 0, past.end, causal=True)
        return attend(qk_TCD[:, : self._heads.query].contiguous(), k_NKD, v_NKD, seen_TK)


def _norm(recipe: MtpRecipe, checkpoint: Checkpoint, name: str, dtype: torch.dtype) -> Norm:
    return read_norm(checkpoint, f"{name}.weight", recipe.eps, dtype, one_plus=recipe.plus_one)


def _head_norm(recipe: MtpRecipe, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> HeadNorm:
    query_D, key_D = (checkpoint.read(f"{prefix}{norm}.weight", torch.float32) for norm in tensors.HEAD_NORMS)
    weight_CD = torch.cat((query_D.expand(recipe.heads.query, -1), key_D.expand(recipe.heads.kv, -1)))
    return HeadNorm((weight_CD + 1 if recipe.plus_one else weight_CD).to(dtype), recipe.eps)


def _mlp(recipe: MtpRecipe, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> Mlp | SparseMlp:
    if isinstance(recipe.mlp, Experts):
        return SparseMlp(recipe.mlp, recipe.hidden_size, checkpoint, prefix, dtype)
    sizes = recipe.mlp, recipe.hidden_size
    gate_up, down = tensors.gate_up(*sizes, bias=recipe.mlp_bias), tensors.down(*sizes, bias=recipe.mlp_bias)
    return Mlp(gate_up, down, checkpoint, prefix, dtype)
