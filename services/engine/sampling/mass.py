"""Probability mass in whole numbers: a sum is the same in any order, over any window, on any number of threads.

A weight is exp((z - max z) / T) in fp32, in units of 2^-44; 2^18 of them fit in int64.

Shape key: R rows, V vocabulary, W any ids of a row."""

import torch
from torch import Tensor

from services.engine.sampling.tiles import tiles

UNIT = 2.0**-44


def relative(values_RW: Tensor, largest_R1: Tensor, temperature_R1: Tensor) -> Tensor:
    """Probability relative to the row's largest. The difference comes before the division: it is exact near the top."""
    return (values_RW - largest_R1).div_(temperature_R1).exp_()


def weights(relative_RW: Tensor) -> Tensor:
    return (relative_RW * (1 / UNIT)).to(torch.int64)


def total(rows_RV: Tensor, largest_R1: Tensor, temperature_R1: Tensor) -> Tensor:
    """The weight of each whole row [R, 1]."""
    result_R1 = torch.empty_like(largest_R1, dtype=torch.int64)
    for tile in tiles(rows_RV):
        weights_RV = weights(relative(rows_RV[tile], largest_R1[tile], temperature_R1[tile]))
        result_R1[tile] = weights_RV.sum(1, keepdim=True)
    return result_R1
