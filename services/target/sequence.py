"""One running generation: what it asked for, how far it is, and who listens.

      0 ............... frontier-1 | frontier
      in the target's cache        | anchor: emitted, not yet in the cache

After the prefill `len(ids) == frontier + 1`. State is keyed by the sequence itself, never by its place in a batch.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.engine.cache.slots import Slot
from services.engine.sampling import Rules
from services.target.counters import Counters, Switch
from services.target.cut import Cutter
from services.target.policy.decision import Decision
from services.target.report import RoundRecord
from services.target.request import Request
from services.target.sink import Sink
from services.target.taps.retained import Retained

MAX_SWITCHES = 256
"""Switches that a report lists; it goes out with every round."""


@dataclass(slots=True, eq=False)
class Sequence:
    """`id` is unique in this process. `slot` is None while it waits; `ids` is the prompt and the kept output. `taps`
    is what drafters need of it, but those `left_out`, which it does without: None when they need nothing."""

    id: int
    request: Request
    ids: list[int]
    rules: Rules
    cutter: Cutter
    sink: Sink
    slot: Slot | None = None
    taps: Retained | None = None
    left_out: frozenset[str] = frozenset()
    counters: Counters = field(default_factory=Counters)
    resolved: Decision | None = None  # the first choice of the policy that mattered: nobody drafts beside a prefill
    current: Decision | None = None
    settled: Decision | None = None  # the last that was meant to last
    recorded: deque[RoundRecord] | None = None  # its rounds, if it asked for them
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

    def decide(self, decision: Decision, hindrances: Mapping[str, str]) -> Switch | None:
        """Take the policy's choice for the coming round, and note a change that is meant to last. `hindrances`: why
        drafters cannot draft for it now."""
        before, self.current = self.settled, decision
        if decision.passing and before is not None:
            return None
        self.settled = decision
        if before is None or self.counters.generated <= 1:  # before, or in, the first round that could draft
            self.resolved = decision
            return None
        if decision.mode == before.mode:
            return None
        reason = decision.reason
        if reason is None and before.mode != "none":
            reason = "gate" if before.mode in decision.eligible else hindrances.get(before.mode, "context")
        switch = Switch(self.counters.generated, before.mode, decision.mode, reason)
        if len(self.counters.switches) < MAX_SWITCHES:
            self.counters.switches.append(switch)
        return switch
