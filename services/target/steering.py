"""Between the round loop and the policy: what the policy is told of the sequences, and what comes of its decisions."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.link.link import DraftAsk, DrafterLink
from services.target.link.turn import Draft
from services.target.policy.bands import place
from services.target.policy.decision import Cut, Decision, Offer, Outcome, Plan, Seen, View
from services.target.policy.resolve import resolve
from services.target.policy.rules import PolicyRules
from services.target.report import RoundRecord
from services.target.request import Request
from services.target.sequence import Sequence as Generation
from services.target.step import Progress

RECORDED_ROUNDS = 4096
"""The latest rounds of a request that are recorded for it."""


class Policy(Protocol):
    """Decides before a round, cuts drafts before they are verified, learns after that. `left_out`: drafters that a
    sequence does without, from its begin on. `resting`: why sequences rest that may draft, a reason for each."""

    def left_out(self, view: View, drafters: Mapping[str, DrafterDescription]) -> Collection[str]: ...

    def decide(self, views: Sequence[View], drafters: Mapping[str, DrafterDescription]) -> Plan: ...

    def cut(self, offers: Sequence[Offer]) -> Cut: ...

    def record(self, seen: Seen) -> None: ...

    def forget(self, key: int) -> None: ...

    def resting(self) -> Sequence[str]: ...


@dataclass(slots=True)
class Decided:
    """Totals: decisions by the rule that made them, switches by reason, seconds of the rounds whose time was predicted,
    as predicted and as measured; by drafter, drafts that came and were cut, and sequences that left it out."""

    because: Counter[str]
    switches: Counter[str]
    cut: Counter[str]
    left_out: Counter[str]
    predicted_s: float = 0.0
    measured_s: float = 0.0


class Steering:
    """One policy for all sequences. Touched on the event loop only."""

    def __init__(self, policy: Policy, rules: PolicyRules, link: DrafterLink) -> None:
        self.totals = Decided(Counter(), Counter(), Counter(), Counter())
        self._policy, self._rules, self._link = policy, rules, link
        self._plan = Plan({})
        self._asked: dict[int, int] = {}
        self._came: Mapping[int, Draft] = {}
        self._seconds: float | None = None  # that the round is expected to take

    @property
    def resting(self) -> Mapping[str, int]:
        """Sequences that rest now, by reason."""
        return Counter(self._policy.resting())

    def first(self, request: Request) -> Decision:
        """What a request would get now, if time were no object."""
        speculation, context = request.speculation, len(request.prompt)
        bands = self._rules.bands if speculation.bands is None else speculation.bands
        view = View(0, speculation, context, request.max_new)
        return resolve(view, place(bands, context, None, 0), self._link.drafters, {})

    def begin(self, sequence: Generation) -> None:
        """Before its first round: which drafters it does without, and what is retained for the others."""
        sequence.left_out = frozenset(self._policy.left_out(_view(sequence, {}), self._link.drafters))
        self.totals.left_out.update(sequence.left_out)
        sequence.taps = self._link.retain(sequence)

    def decide(self, running: Sequence[Generation]) -> None:
        """Give each sequence its decision for the coming round."""
        views = {sequence.id: _view(sequence, self._link.hindrances(sequence)) for sequence in running}
        self._plan = self._policy.decide(list(views.values()), self._link.drafters)
        self._seconds, self._came = self._plan.seconds, {}
        for sequence in running:
            decision = self._plan.decisions[sequence.id]
            if sequence.prefilled:
                self.totals.because[decision.because] += 1
            if switch := sequence.decide(decision, views[sequence.id].hindrances):
                self.totals.switches[switch.reason or "asked"] += 1

    def asks(self, decoding: Sequence[Generation]) -> list[DraftAsk]:
        """What was decided, as questions to the drafter."""
        asks = []
        for sequence in decoding:
            assert sequence.current is not None, "decided at the start of the round"
            # A round emits one token more than it drafts, so the limit also keeps blocks inside the reserved rows.
            length = min(sequence.current.max_draft_tokens, sequence.remaining - 1)
            if length > 0:
                asks.append(DraftAsk(sequence, sequence.current.mode, length))
        self._asked = {ask.sequence.id: ask.max_draft_tokens for ask in asks}
        return asks

    def cut(self, drafts: Mapping[int, Draft]) -> Mapping[int, tuple[int, ...]]:
        """What is verified of the drafts that came, by sequence: of each a beginning, which may be none of it."""
        self._came = drafts
        if not drafts:
            return {}
        offers = [Offer(key, len(draft.ids), draft.confidences) for key, draft in drafts.items()]
        cut = self._policy.cut(offers)
        self._seconds = self._plan.seconds if cut.seconds is None else cut.seconds
        return {
            offer.key: drafts[offer.key].ids[: max(length, 0)]
            for offer, length in zip(offers, cut.lengths, strict=True)
        }

    def record(self, progress: Sequence[Progress], draft_s: float, verify_s: float) -> None:
        """Tell the policy what the round did; `progress` is of all sequences that were in it."""
        decoded = [each for each in progress if each.decoded]
        outcomes = [self._outcome(each) for each in decoded]
        mixed = len(decoded) < len(progress)
        context = sum(len(each.sequence.ids) - len(each.kept) for each in decoded)
        answered = bool(self._asked) and self._link.answered
        self._policy.record(Seen(outcomes, context, draft_s, verify_s, mixed, answered))
        if self._seconds is not None and decoded and not mixed:
            self.totals.predicted_s += self._seconds
            self.totals.measured_s += draft_s + verify_s
        for each, outcome in zip(decoded, outcomes, strict=True):
            if outcome.cut:
                self.totals.cut[outcome.mode] += outcome.cut
            if each.sequence.request.speculation.explain:
                self._write_down(each.sequence, outcome, draft_s + verify_s)

    def forget(self, sequence: Generation) -> None:
        """It ended."""
        self._policy.forget(sequence.id)

    def _outcome(self, progress: Progress) -> Outcome:
        sequence = progress.sequence
        assert sequence.current is not None, "decided at the start of the round"
        accepted = sum(kept.origin == "accepted" for kept in progress.kept)
        asked = self._asked.get(sequence.id, 0) if sequence.id in self._link.asked else 0
        came = self._came.get(sequence.id)
        return Outcome(
            sequence.id,
            sequence.current.mode,
            asked,
            progress.drafted,
            accepted,
            len(progress.kept),
            len(came.ids) - progress.drafted if came else 0,
            came.confidences if came else (),
        )

    def _write_down(self, sequence: Generation, outcome: Outcome, measured_s: float) -> None:
        decision = sequence.current
        assert decision is not None, "decided at the start of the round"
        if sequence.recorded is None:
            sequence.recorded = deque(maxlen=RECORDED_ROUNDS)
        sequence.recorded.append(
            RoundRecord(
                at=sequence.counters.generated - outcome.kept,
                mode=decision.mode,
                because=decision.because,
                asked=outcome.asked,
                came=outcome.came,
                drafted=outcome.drafted,
                accepted=outcome.accepted,
                predicted_s=self._seconds,
                measured_s=measured_s,
                sequences=len(self._plan.decisions),
            )
        )


def _view(sequence: Generation, hindrances: Mapping[str, str]) -> View:
    return View(
        key=sequence.id,
        speculation=sequence.request.speculation,
        context=len(sequence.ids),
        remaining=sequence.remaining,
        hindrances=hindrances,
        decoding=sequence.prefilled,
        greedy=sequence.request.sampling.temperature == 0,
    )
