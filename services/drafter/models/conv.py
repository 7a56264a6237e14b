"""DFlash2's grouped dynamic convolution around a sublayer. It sees the rows of one block, which begin with nothing.

Shape key: S sequences, B rows of a block, T = S * B rows, H hidden size = G groups x W channels, A taps, 2 before and
after the sublayer.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from services.drafter.checkpoints.tensors import BASE_KERNEL, Plan
from services.drafter.models.layers import free_table
from services.engine.weights.checkpoint import Checkpoint

Sublayer = Callable[[Tensor], Tensor]


class Conv:
    """Tap a of row i reaches row i - a. A kernel is a learned base for each channel plus a part that the row's normed
    input gives to each group; both kernels are made of that input, the second one too."""

    def __init__(self, plan: Plan, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> None:
        assert plan.recipe.conv is not None
        self._shape = (2, plan.recipe.conv.taps, plan.recipe.body.hidden_size // plan.recipe.conv.group)
        self._group = plan.recipe.conv.group
        base_2AH = checkpoint.read(prefix + BASE_KERNEL, dtype)
        self._base_2AGW = base_2AH.view(*self._shape, self._group)
        self._kernels = plan.kernels.read(checkpoint, prefix, free_table(dtype), dtype)

    def __call__(self, x_TH: Tensor, sublayer: Sublayer, size: int) -> Tensor:
        """`size`: the rows of a block, B."""
        dynamic_SB2AG1 = self._kernels(x_TH).view(-1, size, *self._shape, 1)
        before_SBAGW, after_SBAGW = (dynamic_SB2AG1 + self._base_2AGW).unbind(2)
        y_TH = sublayer(self._convolve(x_TH, before_SBAGW))
        return self._convolve(y_TH, after_SBAGW)

    def _convolve(self, x_TH: Tensor, kernel_SBAGW: Tensor) -> Tensor:
        x_SBGW = x_TH.reshape(kernel_SBAGW.shape[0], kernel_SBAGW.shape[1], -1, self._group)
        y_SBGW = kernel_SBAGW[:, :, 0] * x_SBGW
        for tap in range(1, kernel_SBAGW.shape[2]):
            y_SBGW[:, tap:] += kernel_SBAGW[:, tap:, tap] * x_SBGW[:, : x_SBGW.shape[1] - tap]
        return y_SBGW.view(x_TH.shape)


def bare(x_TH: Tensor, sublayer: Sublayer, size: int) -> Tensor:
    """No convolution at all."""
    return sublayer(x_TH)
