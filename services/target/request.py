"""What one call asks for, validated. Plain values: no wire types, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from services.engine.sampling import SamplingParams
from services.target.policy.bands import Band

DRAFTED_MODES = ("dflash2", "dflash", "mtp", "ngram")
"""Modes that a drafter serves, in the order in which `auto` prefers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """The caller's choice. `max_draft_tokens` None: the drafter's own most. `bands` None: the configured ones.
    `explain`: record what was decided for each round."""

    mode: str = "auto"
    max_draft_tokens: int | None = None
    strict: bool = False
    stats: bool = False
    audit: bool = False
    bands: tuple[Band, ...] | None = None
    explain: bool = False

    def may_use(self, mode: str) -> bool:
        """Whether the drafter of a mode may draft for it."""
        return self.mode in ("auto", mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to generate.

    `max_new` is the number of tokens after which it ends, already within the context; `open_ended` says that the
    caller set no limit, so that reaching it means the context is full. `stop_ids` end the sequence when drawn.
    """

    id: str
    prompt: Sequence[int]
    max_new: int
    open_ended: bool
    sampling: SamplingParams
    stop_strings: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    speculation: Speculation = field(default_factory=Speculation)

    @property
    def rows(self) -> int:
        """Cache rows it can ever fill: the last token is emitted but never run through the target."""
        return len(self.prompt) + self.max_new - 1
