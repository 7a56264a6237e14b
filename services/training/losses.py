"""How far drafts are from what the target said next.

Shape key: S sequences, P positions, T rows of a pass, A blocks, B rows of a block, J drafts of one, K taps, H hidden
size, X rows that count, D ids that losses are computed over, C candidates.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from services.training.batch import Batch, anchors
from services.training.frozen import Frozen
from services.training.modules.dflash import DFlash
from services.training.modules.mtp import Mtp


@dataclass(frozen=True, slots=True)
class Measured:
    """`loss` to minimise; `right` and `rows` by position of a draft: how many rows had the target's token first."""

    loss: Tensor
    right: list[int]
    rows: list[int]


class Loss(Protocol):
    def __call__(self, model: nn.Module, frozen: Frozen, batch: Batch, dice: torch.Generator) -> Measured: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The rows that count: the target's ids, its states that they came from, and the weight of each row.

    `distil` is the share of the target's own distribution in the loss, the rest is its token's."""

    ids_X: Tensor
    teacher_XH: Tensor
    weight_X: Tensor
    distil: float

    def loss(self, logits_XD: Tensor, frozen: Frozen) -> tuple[Tensor, Tensor]:
        """The weighted sum, and which rows have the target's id first."""
        column_X = frozen.column_V[self.ids_X]
        loss_X = (1 - self.distil) * cross_entropy(logits_XD, column_X, ignore_index=-1, reduction="none")
        if self.distil:
            with torch.no_grad():
                teacher_XD = frozen.logits(self.teacher_XH).softmax(-1)
            loss_X = loss_X + self.distil * cross_entropy(logits_XD, teacher_XD, reduction="none")
        return (loss_X * self.weight_X).sum(), logits_XD.argmax(-1) == column_X


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLoss:
    """Rows of pass p weigh `decay` to the power p. Taps are the final hidden state alone."""

    passes: int
    decay: float
    distil: float

    def __call__(self, model: nn.Module, frozen: Frozen, batch: Batch, dice: torch.Generator) -> Measured:
        assert isinstance(model, Mtp)
        hidden_SPH = batch.taps_SPKH[:, :-1, -1]
        embedded_SPH = frozen.embedding_VH[batch.ids_SP[:, 1:]]
        states = model(hidden_SPH, embedded_SPH, min(self.passes, hidden_SPH.shape[1] - 1))
        parts, right, rows, weight = [], [], [], 0.0
        for step, state_STH in enumerate(states):
            wanted, chosen_ST = self._wanted(batch, step)
            part, right_X = wanted.loss(frozen.logits(state_STH[:, : chosen_ST.shape[1]][chosen_ST]), frozen)
            parts.append(part)
            weight += float(wanted.weight_X.sum())
            right.append(int(right_X.sum()))
            rows.append(len(right_X))
        return Measured(torch.stack(parts).sum() / max(weight, 1e-6), right, rows)

    def _wanted(self, batch: Batch, step: int) -> tuple[Wanted, Tensor]:
        """Row t of pass p predicts t + p + 2. The first anchor is the answer's first id, in row prompt - 1."""
        next_ST = batch.ids_SP[:, step + 2 :]
        row_T = torch.arange(next_ST.shape[1], device=next_ST.device)
        chosen_ST = (row_T >= batch.prompt_S[:, None] - 1) & (row_T + step + 2 < batch.length_S[:, None])
        ids_X = next_ST[chosen_ST]
        wanted = Wanted(
            ids_X=ids_X,
            teacher_XH=batch.taps_SPKH[:, step + 1 : -1, -1][chosen_ST],
            weight_X=torch.full(ids_X.shape, self.decay**step, device=ids_X.device),
            distil=self.distil,
        )
        return wanted, chosen_ST


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashLoss:
    """`blocks` random blocks of each sequence; draft j weighs exp(-(j - 1) / gamma). The last tap is the final hidden
    state, which only distillation looks at."""

    blocks: int
    block_size: int
    mask_id: int
    gamma: float
    distil: float

    def __call__(self, model: nn.Module, frozen: Frozen, batch: Batch, dice: torch.Generator) -> Measured:
        assert isinstance(model, DFlash)
        places_SA, real_SA = (each.to(batch.ids_SP.device) for each in anchors(batch, self.blocks, dice))
        anchor_SA = batch.ids_SP.gather(1, places_SA)
        masks_SAJ = anchor_SA.new_full((*anchor_SA.shape, self.block_size - 1), self.mask_id)
        blocks_SABH = frozen.embedding_VH[torch.cat([anchor_SA[..., None], masks_SAJ], -1)]
        hidden_SABH = model(batch.taps_SPKH[:, :, :-1].flatten(2), blocks_SABH, places_SA)
        step_J = torch.arange(1, self.block_size, device=places_SA.device)
        place_SAJ = places_SA[..., None] + step_J
        chosen_SAJ = real_SA[..., None] & (place_SAJ < batch.length_S[:, None, None])
        wanted, before_X = self._wanted(batch, place_SAJ, chosen_SAJ, step_J)
        hidden_XH = hidden_SABH[:, :, 1:][chosen_SAJ]
        logits_XD = frozen.logits(hidden_XH)
        total, right_X = wanted.loss(logits_XD, frozen)
        if hasattr(model, "candidate_selector"):
            bigram, right_X = _selected(model, frozen, logits_XD, hidden_XH, wanted, before_X)
            total = total + bigram
        step_X = step_J.expand(chosen_SAJ.shape)[chosen_SAJ]
        return Measured(
            total / wanted.weight_X.sum().clamp(min=1e-6),
            [int((right_X & (step_X == step)).sum()) for step in step_J.tolist()],
            [int((step_X == step).sum()) for step in step_J.tolist()],
        )

    def _wanted(self, batch: Batch, place_SAJ: Tensor, chosen_SAJ: Tensor, step_J: Tensor) -> tuple[Wanted, Tensor]:
        """And the id before each."""
        sequence_X = chosen_SAJ.nonzero()[:, 0]
        place_X = place_SAJ[chosen_SAJ]
        weight_SAJ = torch.exp(-(step_J - 1) / self.gamma).expand(chosen_SAJ.shape)
        wanted = Wanted(
            ids_X=batch.ids_SP[sequence_X, place_X],
            teacher_XH=batch.taps_SPKH[sequence_X, place_X - 1, -1],
            weight_X=weight_SAJ[chosen_SAJ],
            distil=self.distil,
        )
        return wanted, batch.ids_SP[sequence_X, place_X - 1]


def _selected(
    model: DFlash, frozen: Frozen, logits_XD: Tensor, hidden_XH: Tensor, wanted: Wanted, before_X: Tensor
) -> tuple[Tensor, Tensor]:
    """The selector's own loss behind the true predecessor. A target's id that is no candidate takes the last place."""
    selector = model.candidate_selector
    column_X = frozen.column_V[wanted.ids_X]
    columns_XC = logits_XD.detach().topk(min(selector.count, logits_XD.shape[1]), -1).indices
    found_X = (columns_XC == column_X[:, None]).any(-1)
    last_X = torch.where(found_X | (column_X < 0), columns_XC[:, -1], column_X)
    columns_XC = torch.cat([columns_XC[:, :-1], last_X[:, None]], -1)
    unary_XC = logits_XD.gather(1, columns_XC)
    scores_XC = selector(unary_XC, frozen.ids_D[columns_XC], hidden_XH, before_X)
    place_X = (columns_XC == column_X[:, None]).int().argmax(-1).masked_fill(column_X < 0, -1)
    loss_X = cross_entropy(scores_XC, place_X, ignore_index=-1, reduction="none")
    return (loss_X * wanted.weight_X).sum(), (scores_XC.argmax(-1) == place_X) & found_X
