"""What a model family gives to the engine.

Shape key: T rows of the forward, H hidden size, R rows that need logits, V vocabulary of the tokenizer.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from services.engine.ops.attention import Heads
from services.engine.ops.linear import Linear
from services.engine.ops.plan import Operator, Table
from services.engine.pack import Packed
from services.engine.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Trunk:
    """A forward without its head: the state after the final norm, and the taps that were asked for."""

    hidden_TH: Tensor
    taps: Mapping[int, Tensor]


class Model(Protocol):
    """Loaded weights."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def head(self) -> Linear:
        """[R, H] to [R, V]."""
        ...

    def __call__(self, packed: Packed, taps: Collection[int]) -> Trunk:
        """Run all rows, writing their keys and values into their slots."""
        ...


class Architecture(Protocol):
    """A config.json understood."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> Heads: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def context(self) -> int: ...

    def operators(self, vocab_size: int) -> list[Operator]:
        """Every operator for which `load` will want a plan."""
        ...

    def check(self, checkpoint: Checkpoint) -> None:
        """Raises BadCheckpoint unless the checkpoint has exactly this model's tensors."""
        ...

    def load(
        self,
        checkpoint: Checkpoint,
        table: Table,
        *,
        dtype: torch.dtype,
        vocab_size: int,
        context: int,
        progress: Callable[[float], None],
    ) -> Model: ...
