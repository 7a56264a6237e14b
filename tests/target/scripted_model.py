"""A model that is a pure function of the history: the one fake in the exactness tests.

Its rows depend on every token before them and are rounded so that ties are common, at the top too.
"""

import zlib
from collections.abc import Callable, Sequence

import torch

from services.engine.batch import Block, Forward
from services.errors import Overloaded

VOCAB, HIDDEN, LAYERS = 32, 8, 5


def logits(history: Sequence[int]) -> torch.Tensor:
    """The row after `history`: multiples of a half in -4..4, from a checksum of position and history."""
    state = zlib.crc32(bytes(id % 256 for id in history) + len(history).to_bytes(4, "little"))
    row = []
    for _ in range(VOCAB):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        row.append(((state >> 16) % 17) / 2 - 4)
    return torch.tensor(row)


def tap(history: Sequence[int], layer: int) -> torch.Tensor:
    """[H] for the last position of `history`: whole numbers, so that nothing is lost in any dtype of 9 bits or more.
    `layer` LAYERS is the state after the final norm."""
    state = zlib.crc32(bytes([*(id % 256 for id in history), layer]))
    return torch.tensor([(state >> shift) % 256 for shift in range(0, 4 * HIDDEN, 4)], dtype=torch.float32)


class ScriptedSlot:
    """Holds the committed ids; rows that were begun are dropped unless they are committed."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.ids: list[int] = []
        self.begun: list[int] = []
        self.closed = False

    @property
    def length(self) -> int:
        return len(self.ids)

    def begin(self, ids: Sequence[int]) -> None:
        assert not self.closed
        assert self.length + len(ids) <= self.rows, "a block reaches past the reserved rows"
        self.begun = list(ids)

    def commit(self, kept: int) -> None:
        assert 0 <= kept <= len(self.begun)
        self.ids += self.begun[:kept]
        self.begun = []


class ScriptedModel:
    """`widths` records the rows of every block, `forwards` the number of passes, `tapped` what was asked of each."""

    vocab_size = VOCAB
    hidden_size = HIDDEN
    layers = LAYERS
    dtype = torch.float32

    def __init__(self, *, context: int = 256, cache_rows: int = 4096) -> None:
        self.context = context
        self.cache_rows = self.free_rows = cache_rows
        self.forwards = 0
        self.widths: list[int] = []
        self.tapped: list[tuple[tuple[int, ...], bool]] = []
        self.fail_at: int | None = None
        self.on_forward: Callable[[], None] = lambda: None

    def open(self, rows: int) -> ScriptedSlot:
        if rows > self.free_rows:
            raise Overloaded("no rows")
        self.free_rows -= rows
        return ScriptedSlot(rows)

    def close(self, slot: ScriptedSlot) -> None:
        if not slot.closed:
            self.free_rows += slot.rows
            slot.closed = True

    def forward(self, blocks: Sequence[Block], *, taps: Sequence[int] = (), hidden: bool = False) -> Forward:
        self.forwards += 1
        self.on_forward()
        if self.forwards == self.fail_at:
            raise RuntimeError("the model broke")
        self.tapped.append((tuple(taps), hidden))
        rows, histories = [], []
        for block in blocks:
            self.widths.append(len(block.ids))
            history = [*block.slot.ids, *block.ids]
            block.slot.begin(block.ids)
            histories += [history[: len(block.slot.ids) + i + 1] for i in range(len(block.ids))]
            rows += [logits(history[: len(history) - block.wanted + i + 1]) for i in range(block.wanted)]
        wanted = [*taps, *([LAYERS] if hidden else [])]
        tapped = {layer: torch.stack([tap(history, layer) for history in histories]) for layer in wanted}
        return Forward(
            logits_RV=torch.stack(rows) if rows else torch.empty(0, VOCAB),
            hidden_TH=tapped.pop(LAYERS, None),
            taps=tapped,
        )
