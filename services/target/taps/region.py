"""The memory that taps are retained in: private, or a file that a drafter maps too.

Shape key: G pages, B bytes of a page, N positions, K taps of a position, H hidden size.
"""

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from services.wire.ring import GENERATION, HEADER_BYTES

PAGE_BYTES = 1 << 20
"""A slot of the wire's ring. Feeds do not cross its end, so it bounds what one carries."""


class Region:
    """Pages as the wire lays out slots. Written on the model's thread only."""

    def __init__(self, memory: mmap.mmap, page_bytes: int) -> None:
        self._memory = memory
        self._page_bytes = page_bytes
        self._pages_GB = torch.frombuffer(memory, dtype=torch.uint8).view(-1, page_bytes)

    @classmethod
    def private(cls, pages: int, page_bytes: int) -> "Region":
        """Of this process alone; a page costs memory from its first write on."""
        return cls(mmap.mmap(-1, pages * page_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), page_bytes)

    def stamp(self, page: int, generation: int) -> None:
        """Before anything else that is written into a page that is used anew."""
        GENERATION.pack_into(self._memory, page * self._page_bytes, generation)

    def taps(self, page: int, shape: tuple[int, int, int], dtype: torch.dtype, *, skip: int) -> Tensor:
        """`shape` [N, K, H] of a page's taps, after those of `skip` positions."""
        count, taps, hidden = shape
        row_bytes = taps * hidden * dtype.itemsize
        start = HEADER_BYTES + skip * row_bytes
        return self._pages_GB[page, start : start + count * row_bytes].view(dtype).view(shape)

    def copy(self, other: "Region", pages: Sequence[int]) -> None:
        """Take over what `other` has in `pages`."""
        for page in pages:
            self._pages_GB[page] = other._pages_GB[page]
