"""What a layer does to each row alone, beside its linears.

Shape key: T rows, H hidden size, F width of the MLP, N heads, D head size.
"""

from torch import Tensor
from torch.nn.functional import rms_norm, silu

from services.engine.ops.plan import RowPlan

# Up to here an elementwise operator runs in one thread. Beyond, threads cut the elements anywhere, and those at a cut
# take the scalar path, whose exponential is another than the vector's.
UNDIVIDED = 32767
LANES = 64  # rows of a multiple of this width have no vector tail


class Norm:
    """Root-mean-square normalisation."""

    def __init__(self, weight_H: Tensor, eps: float, plan: RowPlan) -> None:
        self._weight_H = weight_H
        self._eps = eps
        self._plan = plan

    def __call__(self, x_TH: Tensor) -> Tensor:
        return self._plan(self._op, x_TH)

    def _op(self, x_TH: Tensor) -> Tensor:
        return rms_norm(x_TH, self._weight_H.shape, self._weight_H, self._eps)


class HeadNorm:
    """Root-mean-square normalisation of each head of a row, [T, N, D], by a weight of its own."""

    def __init__(self, weight_ND: Tensor, eps: float, plan: RowPlan) -> None:
        self._weight_ND = weight_ND
        self._eps = eps
        self._plan = plan

    def __call__(self, x_TND: Tensor) -> Tensor:
        return self._plan(self._op, x_TND)

    def _op(self, x_TND: Tensor) -> Tensor:
        return rms_norm(x_TND, x_TND.shape[-1:], None, self._eps).mul_(self._weight_ND)


class SwiGlu:
    """SiLU of the first half of a row times its second half."""

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan

    def __call__(self, gate_up_T2F: Tensor) -> Tensor:
        return self._plan(_swiglu, gate_up_T2F)


def _swiglu(gate_up_T2F: Tensor) -> Tensor:
    gate_TF, up_TF = gate_up_T2F.chunk(2, -1)
    return silu(gate_TF).mul_(up_TF)


def rotate_(x_TND: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> None:
    """Rotary embedding in place. `sin` is negated in its first half. Products and sums are rounded once each, so no
    plan is needed."""
    rolled_TND = x_TND.roll(x_TND.shape[-1] // 2, -1)
    x_TND.mul_(cos_T1D).add_(rolled_TND.mul_(sin_T1D))
