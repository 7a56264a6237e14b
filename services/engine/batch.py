"""What goes into a forward and what comes out.

Shape key: R rows that need logits, V vocabulary, T rows of the forward, H hidden size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from services.engine.cache.slots import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows one sequence brings to a forward: `ids` at positions slot.length .. slot.length + len(ids) - 1."""

    slot: Slot
    ids: Sequence[int]
    wanted: int  # trailing rows that need logits: none in the middle of a prefill, one at its end, all in a verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Rows are in block order. `hidden_TH` is the state after the final norm."""

    logits_RV: Tensor  # fp32; V is the vocabulary of the tokenizer, never the padded rows of a checkpoint
    taps: Mapping[int, Tensor]  # layer -> [T, H], the residual stream after that layer
    hidden_TH: Tensor | None
