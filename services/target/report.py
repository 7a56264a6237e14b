"""What was asked, what ran and why they differ: the snapshot that leaves with every update."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.target.counters import Counters
from services.target.policy.decision import Decision
from services.target.request import Request


@dataclass(frozen=True, slots=True)
class Audit:
    """A plain replay held against the answer. `differs_at` tokens are equal before the first that is not; `margin` is
    how far the replay's likeliest id leads there, in logprobs. None: nothing differs."""

    checked: int
    differs_at: int | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What was decided for one round of a sequence, after `at` generated tokens, and what came of it. The seconds are
    those of the whole round, which `sequences` shared."""

    at: int
    mode: str
    because: str
    asked: int
    came: int
    drafted: int
    accepted: int
    predicted_s: float | None
    measured_s: float
    sequences: int


@dataclass(frozen=True, slots=True)
class Report:
    """A copy, so that a reader on the event loop never sees a round half counted. `recorded`: in the last report of a
    request that asked for it."""

    request: Request
    resolved: Decision
    counters: Counters
    audit: Audit | None = None
    recorded: Sequence[RoundRecord] = ()

    @classmethod
    def snapshot(
        cls, request: Request, resolved: Decision, counters: Counters, recorded: Sequence[RoundRecord] = ()
    ) -> "Report":
        return cls(request, resolved, counters.copy(), recorded=tuple(recorded))
