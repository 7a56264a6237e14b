"""What was asked, what ran and why they differ: the snapshot that leaves with every update."""

from dataclasses import dataclass

from services.target.counters import Counters
from services.target.policy import Decision
from services.target.request import Request


@dataclass(frozen=True, slots=True)
class Report:
    """A copy, so that a reader on the event loop never sees a round half counted."""

    request: Request
    resolved: Decision
    counters: Counters

    @classmethod
    def snapshot(cls, request: Request, resolved: Decision, counters: Counters) -> "Report":
        return cls(request, resolved, counters.copy())
