"""What a drafter is to the stream that serves it.

A context is a drafter's own state for one sequence. It has absorbed positions 0 .. fed - 1 and therefore knows the ids
of positions 0 .. fed, the last being the anchor when `fed` is the frontier. It is fed with committed positions only,
so nothing is ever undone. All methods run on the one compute thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

from services.wire.codec import TensorBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One loaded drafter, what its feeds must carry and which target it fits. Absent: anything fits."""

    mode: str
    name: str
    max_draft_tokens: int
    default_draft_tokens: int
    context_length: int | None = None
    tap_layers: tuple[int, ...] = ()
    needs_final_hidden: bool = False
    gives_confidence: bool = False
    target_hidden_size: int | None = None
    target_vocab_size: int | None = None
    target_fingerprint: str | None = None
    target_tokenizer_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What is known of a sequence before its first feed.

    Temperature, filters, seed and choice say how the target will draw. Its feeds bring, for each position, the layers
    `tap_layers`, ascending, and then the state after the final norm if `final_hidden`: what all of the sequence's
    drafters need together, so that each finds its own among them."""

    first_id: int
    max_positions: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    choice: int = 0
    tap_layers: tuple[int, ...] = ()
    final_hidden: bool = False

    @property
    def taps(self) -> int:
        """The tensors of a position in a feed."""
        return len(self.tap_layers) + self.final_hidden


@dataclass(frozen=True, slots=True)
class Feed:
    """Positions [start, end): the ids of start + 1 .. end, and taps of shape [positions, taps, hidden], where taps are
    the layers that any drafter of the sequence needs, ascending, then the final hidden state if any needs it."""

    start: int
    ids: Sequence[int]
    taps: TensorBytes | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.ids)

    def split(self, position: int) -> tuple[Self, Self]:
        """The parts before and from `position` on."""
        count = position - self.start
        head, rest = replace(self, ids=self.ids[:count]), replace(self, start=position, ids=self.ids[count:])
        if self.taps is None:
            return head, rest
        before, after = self.taps.split(count)
        return replace(head, taps=before), replace(rest, taps=after)


class Context(Protocol):
    @property
    def fed(self) -> int:
        """Positions absorbed so far."""


C = TypeVar("C", bound=Context)


@dataclass(frozen=True, slots=True)
class Ask(Generic[C]):
    """One sequence to draft for, whose context has reached the frontier; 1 .. max_draft_tokens tokens are wanted."""

    context: C
    max_draft_tokens: int


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens for the positions after the anchor; none is an answer too. One confidence a token, or none at all."""

    ids: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()


class Drafter(Protocol[C]):
    @property
    def description(self) -> Description: ...

    def open(self, opening: Opening) -> C:
        """A new context at position 0."""

    def absorb(self, context: C, feed: Feed) -> None:
        """Extend a context; `feed.start` is its `fed`. A drafter may keep the work for its next `draft`, but not the
        feed's taps, which are the target's memory: it copies what it needs later."""

    def draft(self, asks: Sequence[Ask[C]]) -> list[Draft]:
        """One draft for each ask, in order; the batch is one round's."""

    def close(self, context: C) -> None:
        """Free what the context holds."""


AnyDrafter = Drafter[Any]
