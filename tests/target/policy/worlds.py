"""A round after a round for a policy, on a scripted clock: drafters of known cost, drafts that are right by a rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.decision import Decision, Outcome, Plan, Seen, View
from services.target.request import Speculation


@dataclass
class World:
    """`right(mode, key, round)` drafts are right, of as many as are asked for; times are seconds."""

    policy: object
    right: Callable[[str, int, int], int]
    draft_s: Mapping[str, float]
    base_s: float = 0.01
    row_s: float = 0.0
    most: int = 15
    rounds: int = 0
    seconds: float = 0.0
    tokens: int = 0
    plans: list[Plan] = field(default_factory=list)

    @property
    def drafters(self) -> Mapping[str, DrafterDescription]:
        return {
            mode: DrafterDescription(max_draft_tokens=self.most, default_draft_tokens=min(7, self.most))
            for mode in self.draft_s
        }

    def forward_s(self, rows: int) -> float:
        return self.base_s + self.row_s * (rows - 1)

    def round(self, views: Sequence[View], *, mixed: bool = False) -> Mapping[int, Decision]:
        plan = self.policy.decide(views, self.drafters)
        self.plans.append(plan)
        outcomes = []
        for view in views:
            decision = plan.decisions[view.key]
            asked = min(decision.max_draft_tokens, view.remaining - 1)
            accepted = min(self.right(decision.mode, view.key, self.rounds), asked) if asked else 0
            outcomes.append(Outcome(view.key, decision.mode, asked, asked, accepted, accepted + 1))
        asked_modes = {each.mode for each in outcomes if each.asked}
        verify_s = self.forward_s(sum(1 + each.drafted for each in outcomes))
        draft_s = sum(self.draft_s[mode] for mode in asked_modes)
        seen = Seen(outcomes, sum(view.context for view in views), draft_s, verify_s, mixed, bool(asked_modes))
        self.policy.record(seen)
        self.rounds += 1
        self.seconds += seen.seconds
        self.tokens += sum(each.kept for each in outcomes)
        return plan.decisions

    def run(self, rounds: int, count: int = 1, context: int = 500, **asked) -> list[Mapping[int, Decision]]:
        """So many rounds of `count` equal sequences."""
        return [self.round(views(count, context, **asked)) for _ in range(rounds)]


def views(count: int, context: int = 500, remaining: int = 2000, **asked) -> list[View]:
    return [View(key, Speculation(**asked), context, remaining) for key in range(count)]


def always(count: int) -> Callable[[str, int, int], int]:
    return lambda mode, key, round: count
