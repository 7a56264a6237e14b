"""Keys and values of one layer for one sequence, side by side in the order of their positions.

Shape key: T positions added, K positions held, N key heads, D head size, 2 keys and values.
"""

import torch
from torch import Tensor

GROWTH = 64  # positions of room beside a doubled buffer


class Past:
    """What a layer remembers of positions `start` .. `end` - 1; the next one added is `end`.

    Without a window everything is kept. With one, old positions are forgotten in bounded memory: at least the last
    `window` - 1 + `spare` are held, so that those `window` - 1 that the next position sees are there still after the
    last `spare` were cropped.
    """

    __slots__ = ("_buffer_2NKD", "_first", "_held", "_keep", "end")

    def __init__(self, heads: int, dim: int, dtype: torch.dtype, *, window: int | None = None, spare: int = 0) -> None:
        self._keep = None if window is None else window - 1 + spare
        self._buffer_2NKD = torch.empty(2, heads, 0, dim, dtype=dtype)
        self._first = 0  # where the buffer's oldest position lies
        self._held = 0
        self.end = 0

    @property
    def start(self) -> int:
        return self.end - self._held

    def add(self, k_TND: Tensor, v_TND: Tensor) -> None:
        """Positions `end` .. `end` + T - 1. Of more than `window` - 1 + `spare` at once only the last are held."""
        count = len(k_TND)
        self.end += count
        if self._keep is not None and count >= self._keep:
            k_TND, v_TND = k_TND[count - self._keep :], v_TND[count - self._keep :]
            count = self._keep
            self._first = self._held = 0
        self._make_room(count)
        begin = self._first + self._held
        for side_NKD, added_TND in zip(self._buffer_2NKD, (k_TND, v_TND), strict=True):
            side_NKD[:, begin : begin + count] = added_TND.transpose(0, 1)
        self._held += count

    def crop(self, end: int) -> None:
        """Forget positions from `end` on."""
        self._held -= self.end - end
        self.end = end

    def since(self, position: int) -> tuple[Tensor, Tensor, int]:
        """Keys and values [N, K, D] of what is held from `position` on, and the first of these positions.

        They are views: the next `add` may overwrite them."""
        first = max(position, self.start)
        begin, end = self._first + first - self.start, self._first + self._held
        return self._buffer_2NKD[0, :, begin:end], self._buffer_2NKD[1, :, begin:end], first

    def _make_room(self, count: int) -> None:
        """At the buffer's end. What moves is at most as much as was added since the last time."""
        capacity = self._buffer_2NKD.shape[2]
        if self._first + self._held + count <= capacity:
            return
        if self._keep is not None and self._held > self._keep:
            self._first += self._held - self._keep
            self._held = self._keep
        held_2NKD = self._buffer_2NKD[:, :, self._first : self._first + self._held]
        needed = self._held + count
        if needed > capacity:
            room = needed + GROWTH + self._held if self._keep is None else min(2 * needed, 2 * self._keep)
            heads, dim = held_2NKD.shape[1], held_2NKD.shape[3]
            self._buffer_2NKD = held_2NKD.new_empty(2, heads, room, dim)
        else:
            held_2NKD = held_2NKD.clone()  # it may overlap its new place
        self._buffer_2NKD[:, :, : self._held] = held_2NKD
        self._first = 0
