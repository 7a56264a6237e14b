"""DFlash2's candidate selector: one walk from left to right over the likeliest ids of each row.

A candidate's score is its logit plus a bigram score with the id taken before it, weighted by the row's state.

Shape key: S sequences, J rows of each, H hidden size, D ids that may be drafted, V rows of the codebooks, C candidates,
R rank.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from services.drafter.checkpoints.tensors import Plan
from services.drafter.draw import Drawn
from services.drafter.models.head import Head
from services.drafter.models.layers import free_table
from services.engine.sampling.noise import gumbel_of, row_key
from services.engine.sampling.order import top
from services.engine.sampling.params import SamplingParams
from services.engine.weights.checkpoint import Checkpoint


class CandidateSelector:
    def __init__(self, plan: Plan, checkpoint: Checkpoint, head: Head, dtype: torch.dtype) -> None:
        assert plan.recipe.selector is not None
        self._head = head
        self._count = plan.recipe.selector.candidates
        self._projection = plan.projection.read(checkpoint, "", free_table(dtype), dtype)
        self._predecessor_VR = checkpoint.read(plan.predecessor, dtype)
        self._successor_VR = checkpoint.read(plan.successor, dtype)

    def walk(
        self,
        logits_SJD: Tensor,
        hidden_SJH: Tensor,
        anchors: Sequence[int],
        params: Sequence[SamplingParams],
        frontiers: Sequence[int],
    ) -> list[Drawn]:
        """J ids for each sequence, behind its anchor, an id of the target, at position `frontiers[s]`. Logits fp32.

        Ids are taken by argmax, at a temperature under noise; of filters only the temperature counts here. A confidence
        is the share of the id among its row's candidates."""
        sequences, rows, _ = logits_SJD.shape
        ids_SJC, unary_SJC = self._candidates(logits_SJD)
        noise_SJC = _noise(ids_SJC, params, frontiers)
        weights_SJR = self._projection(hidden_SJH.flatten(0, 1)).float().view(sequences, rows, -1)
        successor_SJCR = embedding(ids_SJC, self._successor_VR).float()
        taken_S = torch.tensor(anchors)
        taken, shares = [], []
        for row in range(rows):
            weighted_SR1 = (embedding(taken_S, self._predecessor_VR).float() * weights_SJR[:, row])[:, :, None]
            scores_SC = unary_SJC[:, row] + (successor_SJCR[:, row] @ weighted_SR1)[:, :, 0]
            # Ids ascend, and argmax takes the first of equal scores.
            best_S1 = (scores_SC + noise_SJC[:, row]).argmax(1, keepdim=True)
            taken_S = ids_SJC[:, row].gather(1, best_S1)[:, 0]
            taken.append(taken_S)
            shares.append(scores_SC.softmax(1).gather(1, best_S1)[:, 0])
        ids, confidences = torch.stack(taken, 1).tolist(), torch.stack(shares, 1).tolist()
        return [Drawn(*each) for each in zip(ids, confidences, strict=True)]

    def _candidates(self, logits_SJD: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest target ids of each row, ascending, and their logits [S, J, C]."""
        columns_XC, values_XC = top(logits_SJD.flatten(0, 1), self._count)
        columns_XC, order_XC = columns_XC.sort(1)
        shape = (*logits_SJD.shape[:2], columns_XC.shape[1])
        return self._head.target_ids(columns_XC).view(shape), values_XC.gather(1, order_XC).view(shape)


def _noise(ids_SJC: Tensor, params: Sequence[SamplingParams], frontiers: Sequence[int]) -> Tensor:
    """Of the positions behind the frontiers, times the temperature; nothing for greedy sequences."""
    rows = range(1, ids_SJC.shape[1] + 1)
    keys = [row_key(p.seed, p.choice, f + row) for p, f in zip(params, frontiers, strict=True) for row in rows]
    noise_XC = gumbel_of(keys, ids_SJC.flatten(0, 1).to(torch.int32))
    temperature_S = torch.tensor([0.0 if each.greedy else each.temperature for each in params])
    return noise_XC.view(ids_SJC.shape) * temperature_S[:, None, None]
