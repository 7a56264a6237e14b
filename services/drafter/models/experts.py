"""An MLP of experts, of which every row uses a few, beside one that all rows share.

Shape key: T rows, H hidden size, E experts, X of them chosen, M width of an expert, 2M gate and up, R rows of one.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from services.drafter.checkpoints import mtp_tensors as tensors
from services.drafter.checkpoints.mtp import Experts
from services.drafter.models.layers import Mlp
from services.engine.weights.checkpoint import Checkpoint


class SparseMlp:
    """The router's softmax is over all experts, in fp32; a gate of its own weighs the shared one."""

    def __init__(self, experts: Experts, hidden: int, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> None:
        self._chosen, self._normalised = experts.chosen, experts.normalised
        self._router_EH = checkpoint.read(f"{prefix}gate.weight", dtype)
        self._gate_up_E2MH, self._down_EHM = tensors.read_experts(experts, checkpoint, f"{prefix}experts.", dtype)
        shared = tensors.gate_up(experts.shared, hidden), tensors.down(experts.shared, hidden)
        self._shared = Mlp(*shared, checkpoint, f"{prefix}shared_expert.", dtype)
        self._shared_gate_1H = checkpoint.read(f"{prefix}shared_expert_gate.weight", dtype)

    def __call__(self, x_TH: Tensor) -> Tensor:
        out_TH = self._shared(x_TH) * linear(x_TH, self._shared_gate_1H).sigmoid_()
        weight_TX, expert_TX = linear(x_TH, self._router_EH).softmax(-1, torch.float32).topk(self._chosen)
        if self._normalised:
            weight_TX /= weight_TX.sum(-1, keepdim=True)
        weight_TX = weight_TX.to(x_TH.dtype)
        for expert in sorted({*expert_TX.flatten().tolist()}):
            row_R, choice_R = (expert_TX == expert).nonzero(as_tuple=True)
            gate_RM, up_RM = linear(x_TH[row_R], self._gate_up_E2MH[expert]).chunk(2, -1)
            out_RH = linear(silu(gate_RM).mul_(up_RM), self._down_EHM[expert])
            out_TH.index_add_(0, row_R, out_RH.mul_(weight_TX[row_R, choice_R][:, None]))
        return out_TH
