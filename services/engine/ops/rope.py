"""Rotary positions: frequencies as the checkpoint wants them, and tables of their cosines and sines.

Shape key: P positions, D head size, E half of it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 256  # positions computed at a time, always as many: the bits of a table must not depend on its length


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: float


@dataclass(frozen=True, slots=True)
class Rope:
    """`scaling` divides all frequencies by a number, or blends by wavelength as Llama 3.1 does."""

    theta: float
    scaling: float | Llama3Scaling = 1.0

    def frequencies(self, head_dim: int) -> Tensor:
        frequency_E = 1.0 / self.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
        if isinstance(self.scaling, Llama3Scaling):
            return _blend(frequency_E, self.scaling)
        return frequency_E / self.scaling

    def tables(self, positions: int, head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [P, 1, D], the first half of the sines negated, as `rotate_` wants them."""
        frequency_E = self.frequencies(head_dim)
        cos, sin = [], []
        for start in range(0, positions, BLOCK):
            angle_PE = torch.arange(start, start + BLOCK).float()[:, None] * frequency_E
            cos_PE, sin_PE = angle_PE.cos(), angle_PE.sin()
            cos.append(torch.cat((cos_PE, cos_PE), -1).to(dtype))
            sin.append(torch.cat((-sin_PE, sin_PE), -1).to(dtype))
        return torch.cat(cos)[:, None], torch.cat(sin)[:, None]


def _blend(frequency_E: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Long wavelengths are stretched by the factor, short ones kept, those between interpolated."""
    wavelength_E = 2 * math.pi / frequency_E
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth_E = ((scaling.original_context / wavelength_E - low) / (high - low)).clamp(0, 1)
    return (1 - smooth_E) * frequency_E / scaling.factor + smooth_E * frequency_E
