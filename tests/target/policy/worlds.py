"""A round after a round for a policy, on a scripted clock: drafters of known cost, drafts that are right by a rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.decision import Decision, Offer, Outcome, Plan, Seen, View
from services.target.request import Speculation


@dataclass
class World:
    """`right(mode, key, round)` drafts are right, of as many as are asked for; `says(mode, key, round, drafts)` is what
    the drafter says of them, None: nothing. Times are seconds."""

    policy: object
    right: Callable[[str, int, int], int]
    draft_s: Mapping[str, float]
    base_s: float = 0.01
    row_s: float = 0.0
    most: int = 15
    says: Callable[[str, int, int, int], Sequence[float]] | None = None
    rounds: int = 0
    seconds: float = 0.0
    tokens: int = 0
    plans: list[Plan] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

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
        asks = {view.key: min(plan.decisions[view.key].max_draft_tokens, view.remaining - 1) for view in views}
        modes = {view.key: plan.decisions[view.key].mode for view in views}
        offers = [Offer(key, asked, self._said(modes[key], key, asked)) for key, asked in asks.items() if asked > 0]
        cut = self.policy.cut(offers)
        lengths = dict(zip([offer.key for offer in offers], cut.lengths, strict=True))
        outcomes = []
        for key, asked in asks.items():
            drafted = lengths.get(key, 0)
            accepted = min(self.right(modes[key], key, self.rounds), drafted) if drafted else 0
            said = self._said(modes[key], key, asked) if asked > 0 else ()
            cut_off = max(asked, 0) - drafted
            outcomes.append(Outcome(key, modes[key], asked, drafted, accepted, accepted + 1, cut_off, said))
        asked_modes = {each.mode for each in outcomes if each.asked}
        verify_s = self.forward_s(sum(1 + each.drafted for each in outcomes))
        draft_s = sum(self.draft_s[mode] for mode in asked_modes)
        seen = Seen(outcomes, sum(view.context for view in views), draft_s, verify_s, mixed, bool(asked_modes))
        self.policy.record(seen)
        self.seen.append(seen)
        self.rounds += 1
        self.seconds += seen.seconds
        self.tokens += sum(each.kept for each in outcomes)
        return plan.decisions

    def _said(self, mode: str, key: int, drafts: int) -> Sequence[float]:
        return self.says(mode, key, self.rounds, drafts) if self.says else ()

    def run(self, rounds: int, count: int = 1, context: int = 500, **asked) -> list[Mapping[int, Decision]]:
        """So many rounds of `count` equal sequences."""
        return [self.round(views(count, context, **asked)) for _ in range(rounds)]


def views(count: int, context: int = 500, remaining: int = 2000, **asked) -> list[View]:
    return [View(key, Speculation(**asked), context, remaining) for key in range(count)]


def always(count: int) -> Callable[[str, int, int], int]:
    return lambda mode, key, round: count
