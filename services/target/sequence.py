"""One running generation: what it asked for, how far it is, and who listens.

      0 ............... frontier-1 | frontier
      in the target's cache        | anchor: emitted, not yet in the cache

After the prefill `len(ids) == frontier + 1`. State is keyed by the sequence itself, never by its place in a batch.
"""

from dataclasses import dataclass, field

from services.engine.cache.slots import Slot
from services.engine.sampling import Rules
from services.target.counters import Counters, Switch
from services.target.cut import Cutter
from services.target.policy import Decision
from services.target.request import Request
from services.target.sink import Sink
from services.target.taps.retained import Retained


@dataclass(slots=True, eq=False)
class Sequence:
    """`id` is unique in this process. `slot` is None while it waits; `ids` is the prompt and the kept output. `taps`
    is what drafters need of it: None when they need nothing."""

    id: int
    request: Request
    ids: list[int]
    rules: Rules
    cutter: Cutter
    sink: Sink
    slot: Slot | None = None
    taps: Retained | None = None
    counters: Counters = field(default_factory=Counters)
    resolved: Decision | None = None  # the first choice of the policy that mattered: nobody drafts beside a prefill
    current: Decision | None = None
    passed_over: int = 0  # admissions of later requests while this one did not fit
    ended: bool = False  # nobody listens any more, or it finished: it leaves at the next round boundary

    @property
    def frontier(self) -> int:
        """Positions in the target's cache."""
        return self.slot.length if self.slot else 0

    @property
    def prefilled(self) -> bool:
        """The first token is known, so the last id is the anchor."""
        return len(self.ids) > len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Tokens it may still generate."""
        return self.request.max_new - self.counters.generated

    def decide(self, decision: Decision) -> None:
        """Take the policy's choice for the coming round, and note a change."""
        if self.resolved is None or not self.prefilled:
            self.resolved = decision
        elif self.current is not None and decision.mode != self.current.mode:
            change = Switch(self.counters.generated, self.current.mode, decision.mode, decision.reason)
            self.counters.switches.append(change)
        self.current = decision
