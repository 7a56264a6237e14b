"""Linear layers whose weights are laid out for the kernel once, at load, where PyTorch can.

The operators behind it are those that its compiler uses for frozen weights. They are not public, so they are tried
first; without them every call lays the weight out again, which doubles the time of a bf16 step.

Shape key: T rows, I and O width of a row before and after.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import linear

from services.engine.ops.plan import RowPlan

ROWS_EXPECTED = 16  # a hint for the layout


class Linear:
    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, plan: RowPlan) -> None:
        self._weight_OI = _pack(weight_OI) if plan.packed else weight_OI
        self._bias_O = bias_O
        self._plan = plan
        self._op = self._call_packed if plan.packed else self._call

    def __call__(self, x_TI: Tensor) -> Tensor:
        return self._plan(self._op, x_TI)

    def _call(self, x_TI: Tensor) -> Tensor:
        return linear(x_TI, self._weight_OI, self._bias_O)

    def _call_packed(self, x_TI: Tensor) -> Tensor:
        return _linear_packed(x_TI, self._weight_OI, self._bias_O)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this build and machine have the operators, and they compute what `linear` does."""
    generator = torch.Generator().manual_seed(0)
    x_TI, weight_OI = (torch.randn(size, 64, generator=generator).to(dtype) for size in (2, 96))
    try:
        y_TO = _linear_packed(x_TI, _pack(weight_OI), None)
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(y_TO, linear(x_TI, weight_OI), rtol=2e-2, atol=2e-2)


def _pack(weight_OI: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, ROWS_EXPECTED)
    return packed


def _linear_packed(x_TI: Tensor, packed: Tensor, bias_O: Tensor | None) -> Tensor:
    y_TO: Tensor = torch.ops.mkldnn._linear_pointwise(x_TI, packed, bias_O, "none", [], "")
    return y_TO
