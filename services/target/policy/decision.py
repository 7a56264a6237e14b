"""What the policy is told of a sequence, what it says, and what it learns afterwards. Plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.target.request import Speculation


@dataclass(frozen=True, slots=True)
class Decision:
    """`mode` runs; `reason` says why it is not what was asked for; `max_draft_tokens` is 0 exactly for `none`.

    `because` is the rule that decided: `asked`, `speed`, `calibrate`, `probe`, `refresh`, or a reason. `passing`: for
    this round only, to measure something; it is no switch. `eligible`: what could have drafted."""

    mode: str
    reason: str | None = None
    max_draft_tokens: int = 0
    because: str = "asked"
    passing: bool = False
    eligible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """One sequence at a round boundary: `context` tokens of prompt and output, `remaining` it may still generate.
    `hindrances`: by mode, why a drafter that is up cannot draft for it now. `decoding`: its prompt is read. `greedy`:
    it takes the likeliest tokens, which drafts match more often than drawn ones."""

    key: int
    speculation: Speculation
    context: int
    remaining: int
    hindrances: Mapping[str, str] = field(default_factory=dict)
    decoding: bool = True
    greedy: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """`decisions` by key; for the sequences that decode, the `seconds` that the round will take and the `tokens` it
    will keep, if they can be told: None before anything was measured."""

    decisions: Mapping[int, Decision]
    seconds: float | None = None
    tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """`came` drafts are here for one sequence, with a confidence of 0 to 1 for each, or none at all."""

    key: int
    came: int
    confidences: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """What is verified of each offer: its first `lengths[i]` drafts. `seconds` the round will take with that, in place
    of the plan's; None: as planned."""

    lengths: Sequence[int]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did for one sequence: of `asked` drafts the first `drafted` were verified, `accepted` of them kept;
    `kept` tokens in all. `cut` more drafts came, and of them nobody knows whether they were right; what is missing
    then to `asked` never came. `confidences` of all that came, or none at all."""

    key: int
    mode: str
    asked: int
    drafted: int
    accepted: int
    kept: int
    cut: int = 0
    confidences: Sequence[float] = ()

    @property
    def came(self) -> int:
        return self.drafted + self.cut


@dataclass(frozen=True, slots=True)
class Seen:
    """A round that is over: seconds of waiting for drafts and of the model, and what it did for each sequence that
    decoded. `mixed`: prompts were read beside them, so that its time says nothing of theirs. `answered`: the drafter
    was asked, and answered in time."""

    outcomes: Sequence[Outcome]
    context: int
    draft_s: float
    verify_s: float
    mixed: bool = False
    answered: bool = True

    @property
    def rows(self) -> int:
        """Rows of the verify forward."""
        return sum(1 + each.drafted for each in self.outcomes)

    @property
    def seconds(self) -> float:
        return self.draft_s + self.verify_s
