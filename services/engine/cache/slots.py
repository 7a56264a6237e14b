"""Keys and values of sequences, one slot each, against one budget of rows.

Shape key: S rows of a slot, N key heads and then as many value heads, D head size.
"""

from dataclasses import dataclass
from mmap import mmap

import torch
from torch import Tensor

from services.errors import Overloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What one row holds, and the multiple of rows that attention reads at a time."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page: int

    def zeros(self, rows: int) -> Tensor:
        """[layers, S, 2N, D], S a multiple of `page`: zeros that cost no memory until they are written.

        Masked rows take part in products, so rows that nobody wrote must hold finite numbers."""
        shape = (self.layers, -(-rows // self.page) * self.page, 2 * self.kv_heads, self.head_dim)
        size = torch.Size(shape).numel()
        return torch.frombuffer(mmap(-1, size * self.dtype.itemsize), dtype=self.dtype, count=size).view(shape)


class Slot:
    """The rows of one sequence: `length` committed ones, then those that the last forward began."""

    def __init__(self, rows: int, layout: Layout) -> None:
        self.rows = rows
        self.length = 0
        self._begun = 0
        heads = layout.kv_heads
        storage = layout.zeros(rows).unbind()
        self.kv = storage  # of each layer: [S, 2N, D]
        self.k = [kv_S2ND[:, :heads].transpose(0, 1)[None] for kv_S2ND in storage]  # [1, N, S, D]
        self.v = [kv_S2ND[:, heads:].transpose(0, 1)[None] for kv_S2ND in storage]

    @property
    def closed(self) -> bool:
        return not self.kv

    def begin(self, rows: int) -> None:
        """Announce `rows` rows after the committed ones. Rows begun before and not committed are dropped."""
        if self.closed:
            raise ValueError("the slot is closed")
        if not 0 < rows <= self.rows - self.length:
            raise ValueError(f"{rows} rows do not fit: {self.length} of {self.rows} are taken")
        self._begun = rows

    def commit(self, kept: int) -> None:
        """Keep the first `kept` of the rows begun, and drop the others."""
        if not 0 <= kept <= self._begun:
            raise ValueError(f"cannot keep {kept} of {self._begun} rows")
        self.length += kept
        self._begun = 0

    def release(self) -> None:
        """Give the memory back."""
        self.kv, self.k, self.v = (), [], []
        self._begun = 0


class Slots:
    """Opens and closes slots within a budget of rows, reserved when a slot is opened."""

    def __init__(self, rows: int, layout: Layout) -> None:
        self.free_rows = rows
        self._layout = layout

    def open(self, rows: int) -> Slot:
        if rows < 1:
            raise ValueError(f"a slot of {rows} rows")
        if rows > self.free_rows:
            raise Overloaded(f"{rows} cache rows are asked for and {self.free_rows} are free")
        slot = Slot(rows, self._layout)
        self.free_rows -= rows
        return slot

    def close(self, slot: Slot) -> None:
        if not slot.closed:
            slot.release()
            self.free_rows += slot.rows
