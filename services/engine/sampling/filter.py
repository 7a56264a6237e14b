"""top-k, then top-p on the renormalised rest, then min-p: what they keep is a prefix of the row's order.

Shape key: R rows, V vocabulary, W window of leading ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from services.engine.sampling.mass import relative, total, weights
from services.engine.sampling.order import Window
from services.engine.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Filters:
    """One column a row; a filter that is off has a bound that nothing crosses."""

    temperature_R1: Tensor
    top_k_R1: Tensor
    top_p_R1: Tensor
    min_p_R1: Tensor
    total_R1: Tensor

    @classmethod
    def of(cls, rows_RV: Tensor, params: Sequence[SamplingParams]) -> Self:
        vocab_size = rows_RV.shape[1]

        def column(values: Iterable[float], dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor(list(values), dtype=dtype, device=rows_RV.device)[:, None]

        temperature_R1 = column(p.temperature for p in params)
        total_R1 = torch.ones_like(temperature_R1)
        if any(p.top_p < 1.0 for p in params):  # nothing else measures
            total_R1 = total(rows_RV, rows_RV.amax(1, keepdim=True), temperature_R1)
        return cls(
            temperature_R1,
            column((p.top_k or vocab_size for p in params), torch.int64),
            column(p.top_p if p.top_p < 1.0 else torch.inf for p in params),
            column(p.min_p for p in params),
            total_R1,
        )

    def of_rows(self, chosen_R: Tensor) -> Self:
        return type(self)(*(getattr(self, field.name)[chosen_R] for field in fields(self)))

    def kept(self, window: Window, vocab_size: int) -> tuple[Tensor, Tensor]:
        """Which ids of the window stay [R, W], and whether the window is wide enough to tell [R]."""
        likely_RW = relative(window.values_RW, window.values_RW[:, :1], self.temperature_R1)
        reached_RW = weights(likely_RW).cumsum(1)
        width = reached_RW.shape[1]
        limited_R1 = self.top_k_R1 < vocab_size
        top_k_total_R1 = reached_RW.gather(1, self.top_k_R1.clamp_max(width) - 1)
        mass_RW = (reached_RW.double() / torch.where(limited_R1, top_k_total_R1, self.total_R1)).float()
        passes_RW = torch.arange(width, device=mass_RW.device) < self.top_k_R1
        passes_RW[:, 1:] &= mass_RW[:, :-1] < self.top_p_R1  # the id that reaches p is the last one kept
        passes_RW &= likely_RW >= self.min_p_R1
        kept_RW = passes_RW.cumprod(1).bool()
        ended_R = kept_RW.sum(1) <= window.whole_R  # of the first entry past the whole part the value is certain
        known_R = ~limited_R1[:, 0] | (self.top_k_R1[:, 0] <= window.whole_R)
        return kept_RW, (ended_R & known_R) | (width == vocab_size)
