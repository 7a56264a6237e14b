"""Chooses drafters and draft lengths of all sequences together, so that the batch keeps the most tokens a second.

Everything it goes by is measured: what a forward takes by its rows, what each drafter takes, how many drafts are kept.
What it does not know it hopes for, tries, and pays for out of each request's small budget.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.acceptance import Prior
from services.target.policy.budget import Budget
from services.target.policy.case import Case, Chosen
from services.target.policy.choosing import choose
from services.target.policy.decision import Cut, Decision, Offer, Plan, Seen, View
from services.target.policy.resolve import eligible, limit, resolve
from services.target.policy.rules import PolicyRules
from services.target.policy.standing import JOIN, Standing, joined, left
from services.target.policy.steered import Steered
from services.target.policy.timings import Timings
from services.target.policy.tries import Tries
from services.target.policy.trim import Arrived, Trim, reach
from services.target.policy.usage import Usage, chosen_freely

Drafters = Mapping[str, DrafterDescription]

PASSING = ("calibrate", "probe", "refresh", JOIN)
"""Done for now only: to learn something, or until the next plan."""

KNOWN = 8
"""Tries of a drafter, by any sequence, after which one more that brings nothing makes the next wait longer."""


class Controller:
    """Touched between forwards only: `decide`, `cut` what drafts came, then `record` what came of it. Deterministic in
    what it is told."""

    def __init__(self, rules: PolicyRules) -> None:
        self._rules = rules
        self._timings = Timings()
        self._trim = Trim()
        self._usage = Usage()
        self._priors: dict[str, Prior] = {}
        self._states: dict[int, Steered] = {}
        self._chosen: Chosen | None = None
        self._plan = Plan({})
        self._standing = Standing()
        self._cases: list[Case] = []

    def forget(self, key: int) -> None:
        """A sequence ended."""
        self._states.pop(key, None)

    def resting(self) -> Sequence[str]:
        """Why sequences rest that may draft: a reason for each."""
        return [state.reason for state in self._states.values() if state.reason is not None]

    def left_out(self, view: View, drafters: Drafters) -> Collection[str]:
        """Drafters that a sequence which begins is not to be fed to: hardly anybody used them of late."""
        lengths = range(view.context, view.context + view.remaining)
        return self._usage.left_out(view.speculation, self._rules.bands, lengths, drafters)

    def decide(self, views: Sequence[View], drafters: Drafters) -> Plan:
        """The coming round."""
        joining = self._standing.joining(views, drafters)
        if joining is None:
            self._plan = self._new_plan(views, drafters)
            settled = self._chosen is not None and self._chosen.trial_rate is None
            self._standing.begin(views, drafters, settled=settled)
        elif joining or len(views) < len(self._plan.decisions):
            self._plan = self._standing_plan(views, joining, drafters)
        return self._plan

    def _new_plan(self, views: Sequence[View], drafters: Drafters) -> Plan:
        for mode in [mode for mode in self._priors if mode not in drafters]:
            del self._priors[mode]
            self._timings.forget(mode)
            self._trim.forget(mode)
            self._usage.forget(mode)
        for mode in drafters:
            self._priors.setdefault(mode, Prior()).refresh()
        self._cases = [self._case(view, drafters) for view in views if view.decoding]
        chosen = choose(self._cases, self._timings, self._priors, self._rules)
        self._chosen = chosen = self._reaching(chosen) if chosen else None
        decisions = {view.key: self._waiting(view, drafters) for view in views if not view.decoding}
        for index, case in enumerate(self._cases):
            decisions[case.view.key] = self._decision(index, case, drafters)
        if chosen is None:
            return Plan(decisions)
        return Plan(decisions, chosen.allotment.seconds or None, chosen.allotment.tokens)

    def _standing_plan(self, views: Sequence[View], joining: Sequence[View], drafters: Drafters) -> Plan:
        """The plan that stands, without who left and with who came."""
        chosen, decisions = self._chosen, dict(self._plan.decisions)
        assert chosen is not None, "only what was chosen stands"
        chosen, self._cases = left(chosen, self._cases, {view.key for view in views})
        for view in joining:
            if not view.decoding:
                decisions[view.key] = self._waiting(view, drafters)
                continue
            case = self._case(view, drafters)
            self._cases.append(case)
            self._chosen = chosen = joined(chosen, case, self._priors, self._rules)
            decisions[view.key] = self._decision(len(self._cases) - 1, case, drafters)
        self._chosen = chosen
        return replace(self._plan, decisions={view.key: decisions[view.key] for view in views})

    def _waiting(self, view: View, drafters: Drafters) -> Decision:
        """What a sequence would get whose prompt is still read."""
        return resolve(view, self._state(view).band, drafters, {})

    def _decision(self, index: int, case: Case, drafters: Drafters) -> Decision:
        chosen = self._chosen
        decision = resolve(case.view, case.state.band, drafters, chosen.speeds(index, case) if chosen else {})
        return self._noted(case.state, decision, chosen.because[index] if chosen else "speed")

    def _reaching(self, chosen: Chosen) -> Chosen:
        """The choice, with longer questions where the wait hardly grows: what comes is cut before it costs rows."""
        if chosen.trial_rate is not None:
            return chosen
        modes, most = list(chosen.modes), [0] * len(self._cases)
        for index, (case, mode) in enumerate(zip(self._cases, modes, strict=True)):
            if mode and self._trim.informed(mode, greedy=case.view.greedy):
                most[index] = case.most[mode]
        if not any(most):
            return chosen
        lengths = chosen.allotment.lengths
        asks = reach(modes, lengths, most, self._timings.draft, chosen.allotment.seconds)
        return replace(chosen, asks=asks)

    def cut(self, offers: Sequence[Offer]) -> Cut:
        """What is worth verifying of the drafts that came for the round that was decided last. A try is verified whole,
        to learn what it is there for."""
        chosen = self._chosen
        curve = self._timings.verify(sum(case.view.context for case in self._cases))
        told = chosen is not None and (chosen.asks or any(offer.confidences for offer in offers))
        if not told or chosen is None or chosen.trial_rate is not None or curve is None:
            return Cut([offer.came for offer in offers])
        cases = {case.view.key: (index, case) for index, case in enumerate(self._cases)}
        arrived = []
        for offer in offers:
            index, case = cases[offer.key]
            mode, planned = self._plan.decisions[offer.key].mode, chosen.allotment.lengths[index]
            known = case.state.of(mode, self._priors)
            arrived.append(Arrived(offer, mode, case.view.greedy, planned, int(case.strict), known))
        lengths = self._trim.lengths(arrived, len(cases), curve.at, chosen.allotment.rate)
        return Cut(lengths, chosen.allotment.wait_s + curve.at(len(cases) + sum(lengths)))

    def record(self, seen: Seen) -> None:
        """What came of the round that was decided last."""
        trial_rate = self._chosen.trial_rate if self._chosen and not seen.mixed else None
        lost_s = 0.0
        if trial_rate is not None:
            lost_s = seen.seconds - sum(each.kept for each in seen.outcomes) / trial_rate
        self._timings.record(seen)
        used = {outcome.mode for outcome in seen.outcomes if outcome.asked}
        for mode, prior in self._priors.items():
            if mode not in used:
                prior.relax()
        for outcome in seen.outcomes:
            state = self._states.get(outcome.key)
            if state is None:
                continue
            drafted = outcome.mode if outcome.asked else None
            if state.free and state.band:
                self._usage.record(state.band, state.able, drafted if drafted == state.mode else None)
            state.budget.spend(seen.seconds, lost_s)
            if drafted and seen.answered:
                self._trim.learn(outcome, state.of(drafted, self._priors), greedy=state.greedy)
            state.rounds += 1
            if drafted in state.tries:
                state.drafted(drafted, self._rules, known=self._priors[drafted].tries >= KNOWN)

    def _case(self, view: View, drafters: Drafters) -> Case:
        state = self._state(view)
        able = eligible(view, state.placed(view, self._rules), drafters).modes
        for mode in able:
            if mode not in state.tries:
                state.tries[mode] = Tries(self._rules.gate.first, state.rounds)
        most = {mode: min(limit(view.speculation, drafters[mode]), view.remaining - 1) for mode in able}
        state.able, state.greedy, state.free = able, view.greedy, chosen_freely(view.speculation)
        return Case(view, state, most)

    def _state(self, view: View) -> Steered:
        if view.key not in self._states:
            state = self._states[view.key] = Steered(Budget(self._rules.probe_share))
            state.placed(view, self._rules)
        return self._states[view.key]

    def _noted(self, state: Steered, decision: Decision, because: str) -> Decision:
        """The decision: for once only, or what the sequence uses from now on."""
        if because in PASSING and decision.because in (because, "gate"):
            return replace(decision, because=because, passing=decision.mode != state.mode)
        state.mode, state.reason = decision.mode, decision.reason
        return decision
