"""Blocks of many sequences packed into the rows of one forward.

Shape key: T rows of the forward, padded to what the plans ask, R rows that need logits, padded likewise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.engine.batch import Block
from services.engine.ops.tiles import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """`rows` and `wanted` count what is not padding."""

    ids_T: Tensor
    positions_T: Tensor
    spans: tuple[Span, ...]
    wanted_R: Tensor
    rows: int
    wanted: int


def pack(blocks: Sequence[Block], multiple: int) -> Packed:
    """Padding rows are token 0 at position 0 of nobody; their results are dropped."""
    ids: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    spans = []
    for block in blocks:
        begin, end = len(ids), len(ids) + len(block.ids)
        ids += block.ids
        positions += range(block.slot.length, block.slot.length + end - begin)
        wanted += range(end - block.wanted, end)
        spans.append(Span(block.slot, begin, end))
    return Packed(
        ids_T=_padded(ids, multiple),
        positions_T=_padded(positions, multiple),
        spans=tuple(spans),
        wanted_R=_padded(wanted, multiple),
        rows=len(ids),
        wanted=len(wanted),
    )


def _padded(values: list[int], multiple: int) -> Tensor:
    return torch.tensor(values + [0] * (-len(values) % multiple), dtype=torch.long)
