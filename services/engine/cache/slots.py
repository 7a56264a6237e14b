"""Keys and values of sequences, one slot each, against one budget of rows.

A slot is a lane of one large tensor a layer, so that attention can read the lanes of many sequences in one call. The
tensors span every lane to its end, but a page of them costs memory only from its first write until its slot is closed.
The rows of a head lie one after another, as attention reads them: a third of its time goes to waiting for memory
otherwise.

Shape key: L lanes, S rows of a lane, N key heads and then as many value heads, D head size.
"""

import heapq
import mmap
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from services.errors import BadConfig, Overloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What one row holds, and the multiple of rows that attention reads at a time."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page: int


class Slot:
    """The rows of one sequence: `length` committed ones, then those that the last forward began."""

    def __init__(self, pool: "Slots", lane: int, rows: int) -> None:
        self.pool = pool
        self.lane = lane
        self.rows = rows
        self.length = 0
        self.closed = False
        self._begun = 0

    def kv(self, layer: int) -> Tensor:
        """[S, 2N, D]: the keys of every row, then its values."""
        return self.pool.kv[layer][self.lane].transpose(0, 1)

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


class Slots:
    """Opens and closes slots of up to `longest` rows. Of all `rows`, a slot reserves its own when it is opened."""

    def __init__(self, layout: Layout, *, rows: int, lanes: int, longest: int) -> None:
        self.free_rows = rows
        self.lane_rows = -(-longest // layout.page) * layout.page
        self._longest = longest
        self._free_lanes = list(range(lanes))  # a heap: running sequences stay side by side
        shape = (layout.layers, lanes, 2 * layout.kv_heads, self.lane_rows, layout.head_dim)
        self._memory = _memory(torch.Size(shape).numel() * layout.dtype.itemsize)
        whole = torch.frombuffer(self._memory, dtype=layout.dtype).view(shape)
        self.kv = whole.unbind()  # of each layer: [L, 2N, S, D]

    def open(self, rows: int) -> Slot:
        if rows > self.free_rows:
            raise Overloaded(f"{rows} cache rows are asked for and {self.free_rows} are free")
        if not 0 < rows <= self._longest:
            raise ValueError(f"a slot of {rows} rows; legal are 1 to {self._longest}")
        if not self._free_lanes:
            raise Overloaded("every slot is taken")
        self.free_rows -= rows
        return Slot(self, heapq.heappop(self._free_lanes), rows)

    def close(self, slot: Slot) -> None:
        if slot.closed:
            return
        slot.closed = True
        self._give_back(slot.lane)
        heapq.heappush(self._free_lanes, slot.lane)
        self.free_rows += slot.rows

    def _give_back(self, lane: int) -> None:
        """Return the lane's memory to the system. What is read there next is zero: masked rows take part in products,
        so even they must hold finite numbers."""
        start = self.kv[0].data_ptr()
        for kv_L2NSD in self.kv:
            kv_2NSD = kv_L2NSD[lane]
            self._memory.madvise(mmap.MADV_DONTNEED, kv_2NSD.data_ptr() - start, kv_2NSD.nbytes)


def _memory(size: int) -> mmap.mmap:
    """Zeros that exist when they are written. Linux would else refuse to promise more than there is."""
    no_reserve = 0x4000 if sys.platform == "linux" else 0
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError as error:
        raise BadConfig(
            f"the cache wants {size >> 30} GiB of address space, and the system refuses ({error.strerror}); "
            "lower context or max_sequences"
        ) from error
