"""What drafters need of the target's layers, and in which order a position's taps hold it.

Shape key: T rows of a forward, H hidden size.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from tandem.v1.drafter_pb2 import DrafterDescription
from torch import Tensor

from services.engine.batch import Forward


@dataclass(frozen=True, slots=True)
class Needs:
    """The residual streams after `layers`, ascending, then the state after the final norm if `hidden`; `len` counts
    them."""

    layers: tuple[int, ...] = ()
    hidden: bool = False

    @classmethod
    def of(cls, drafters: Iterable[DrafterDescription]) -> Self:
        """What a feed carries that is for all of `drafters`."""
        every = list(drafters)
        layers = {layer for each in every for layer in each.tap_layers}
        return cls(tuple(sorted(layers)), any(each.needs_final_hidden for each in every))

    def __len__(self) -> int:
        return len(self.layers) + self.hidden

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(tuple(sorted({*self.layers, *other.layers})), self.hidden or other.hidden)

    def covers(self, other: "Needs") -> bool:
        return self | other == self

    def places(self, other: "Needs") -> tuple[int, ...]:
        """Where the taps of `other`, which are covered, stand among these."""
        layers = tuple(self.layers.index(layer) for layer in other.layers)
        return layers + ((len(self.layers),) if other.hidden else ())

    def rows(self, forward: Forward) -> list[Tensor]:
        """Of a forward that was asked for at least these: [T, H] each."""
        rows_TH = [forward.taps[layer] for layer in self.layers]
        if self.hidden:
            assert forward.hidden_TH is not None, "it was asked for"
            rows_TH.append(forward.hidden_TH)
        return rows_TH
