"""How the feeds of one context carry taps: as regions of the ring, or as bytes.

Shape key: N positions, K taps of a position, H hidden size.
"""

from dataclasses import dataclass

import torch
from tandem.v1.types_pb2 import RingSlot, Tensor

from services.target.taps.needs import Needs
from services.target.taps.retained import Page, Retained
from services.target.taps.taps import Taps
from services.wire.codec import DATA_TYPES, TensorBytes, tensor_message

NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}


def lacking(retained: Retained | None, needs: Needs) -> str | None:
    """Why a drafter cannot be fed what it needs of a sequence, as a reason of the report; None when it can."""
    if not needs:
        return None
    if retained is None or not retained.needs.covers(needs):
        return "drafter_not_loaded"  # when the sequence began, or not in this form
    return "memory" if retained.ended else None


@dataclass(frozen=True, slots=True)
class Tapped:
    """`needs` is what the drafters of the context need, of what is retained; `ring`: the drafter maps it."""

    taps: Taps
    retained: Retained
    needs: Needs
    ring: bool

    @property
    def inline(self) -> bool:
        """A drafter reads whole positions only."""
        return not self.ring or self.needs != self.retained.needs

    def tensor(self, start: int, end: int) -> tuple[Tensor, Page | None]:
        """The taps of positions [start, end), which lie in one page, and that page if the drafter is to read it."""
        dtype = NAMES[self.taps.dtype]
        taps_NKH = self.taps.read(self.retained, start, end)
        if self.inline:
            if self.needs != self.retained.needs:
                taps_NKH = taps_NKH[:, list(self.retained.needs.places(self.needs))]
            data = taps_NKH.view(torch.uint8).numpy().tobytes()
            return tensor_message(TensorBytes(dtype, tuple(taps_NKH.shape), data)), None
        page, skip = self.retained.place(start)
        region = RingSlot(
            slot=page.index,
            generation=page.generation,
            offset_bytes=self.taps.offset(self.retained, skip),
            size_bytes=taps_NKH.nbytes,
        )
        return Tensor(dtype=DATA_TYPES.value(dtype), shape=taps_NKH.shape, ring=region), page
