"""What the round loop needs of a model. The engine is one; a test's scripted model is another."""

from collections.abc import Sequence
from typing import Protocol

from services.engine.batch import Block, Forward
from services.engine.cache.slots import Slot


class Model(Protocol):
    """Used from one thread at a time. `context` and `free_rows` count positions."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def free_rows(self) -> int: ...

    def open(self, rows: int) -> Slot:
        """Reserve `rows` cache rows. Raises Overloaded when they do not fit."""
        ...

    def close(self, slot: Slot) -> None:
        """Free the slot; a second time changes nothing."""
        ...

    def forward(self, blocks: Sequence[Block], *, taps: Sequence[int] = (), hidden: bool = False) -> Forward:
        """Run all rows in one pass. The caller commits what it keeps of each slot."""
        ...
