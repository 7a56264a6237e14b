"""What was asked, what ran and why they differ: the snapshot that leaves with every update."""

from dataclasses import dataclass

from services.target.counters import Counters
from services.target.policy import Decision
from services.target.request import Request


@dataclass(frozen=True, slots=True)
class Audit:
    """A plain replay held against the answer. `differs_at` tokens are equal before the first that is not; `margin` is
    how far the replay's likeliest id leads there, in logprobs. None: nothing differs."""

    checked: int
    differs_at: int | None = None
    margin: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A copy, so that a reader on the event loop never sees a round half counted."""

    request: Request
    resolved: Decision
    counters: Counters
    audit: Audit | None = None

    @classmethod
    def snapshot(cls, request: Request, resolved: Decision, counters: Counters) -> "Report":
        return cls(request, resolved, counters.copy())
