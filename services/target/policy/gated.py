"""The simpler policy: the drafter that is liked best, as long as its rounds win; each sequence judged by itself.

Where it loses, the floor is the family's own multi-token prediction if that wins, and else plain decoding.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.bands import Band, place
from services.target.policy.budget import Budget
from services.target.policy.decision import Cut, Offer, Outcome, Plan, Seen, View
from services.target.policy.gate import Gate, State, Wish
from services.target.policy.length import Length
from services.target.policy.resolve import Speed, eligible, limit, resolve
from services.target.policy.rules import PolicyRules
from services.target.policy.timings import Timings

Drafters = Mapping[str, DrafterDescription]
FLOOR_MODE = "mtp"
SPEED = 0.3
"""Of a new sample in the mean time of a floor drafter's token."""


@dataclass(slots=True)
class Judged:
    """One drafter of one sequence. `token_s`: what a token takes with it, on average."""

    gate: Gate
    length: Length
    drafted: int = 0
    accepted: int = 0
    token_s: float | None = None


@dataclass(slots=True)
class Gated:
    """One sequence."""

    budget: Budget
    band: Band | None = None
    mode: str | None = None
    reason: str | None = None
    judged: dict[str, Judged] = field(default_factory=dict)
    order: Sequence[str] = ()  # the drafter that is liked best, then its floor


class GatePolicy:
    """Touched between rounds only: `decide`, then `record` what came of it. Deterministic in what it is told."""

    def __init__(self, rules: PolicyRules) -> None:
        self._rules = rules
        self._timings = Timings()
        self._states: dict[int, Gated] = {}

    def forget(self, key: int) -> None:
        """A sequence ended."""
        self._states.pop(key, None)

    def resting(self) -> Sequence[str]:
        """Why sequences rest that may draft: a reason for each."""
        return [state.reason for state in self._states.values() if state.reason is not None]

    def left_out(self, view: View, drafters: Drafters) -> Collection[str]:
        """Whatever may be asked one day is fed from the start."""
        return ()

    def decide(self, views: Sequence[View], drafters: Drafters) -> Plan:
        """The coming round."""
        decoding = [view for view in views if view.decoding]
        may_measure = bool(decoding) and not any(view.speculation.strict for view in decoding)
        for view in views:
            self._placed(view, drafters)
        passing = None
        if may_measure and self._timings.calibrating:
            passing = "calibrate"
        elif may_measure and all(self._wants_refresh(view) for view in decoding):
            passing = "refresh"
        decisions = {}
        for view in views:
            state = self._states[view.key]
            speeds = self._speeds(view, state, plain=passing is not None and view.decoding)
            decision = resolve(view, state.band, drafters, speeds)
            if passing and view.decoding and decision.because == "gate":
                decision = replace(decision, because=passing, passing=state.mode != "none")
            elif view.decoding:
                state.mode, state.reason = decision.mode, decision.reason
            decisions[view.key] = decision
        return Plan(decisions)

    def cut(self, offers: Sequence[Offer]) -> Cut:
        """Nothing is cut: the length follows what was used of whole drafts."""
        return Cut([offer.came for offer in offers])

    def record(self, seen: Seen) -> None:
        """What came of the round that was decided last."""
        self._timings.record(seen)
        curve = self._timings.verify(seen.context)
        for outcome in seen.outcomes:
            if (state := self._states.get(outcome.key)) is not None:
                plain_s = curve.at(len(seen.outcomes)) if curve else None
                self._judge(state, outcome, None if seen.mixed else plain_s, seen.seconds)

    def _judge(self, state: Gated, outcome: Outcome, plain_s: float | None, seconds: float) -> None:
        lost_s = 0.0
        for place_in_order, mode in enumerate(state.order):
            judged = state.judged[mode]
            if mode != outcome.mode or not outcome.asked:
                judged.gate.floored()
                continue
            judged.drafted, judged.accepted = judged.drafted + outcome.drafted, judged.accepted + outcome.accepted
            judged.length.record(outcome.asked, outcome.kept)
            token_s = seconds / outcome.kept
            judged.token_s = token_s if judged.token_s is None else (1 - SPEED) * judged.token_s + SPEED * token_s
            if plain_s is not None:
                ratio = outcome.kept * self._floor_s(state, place_in_order, plain_s) / seconds
                judged.gate.drafted(ratio)
                if judged.gate.state is not State.DRAFTING:
                    lost_s = seconds * (1 - ratio)
            break
        state.budget.spend(seconds, lost_s)

    def _floor_s(self, state: Gated, place_in_order: int, plain_s: float) -> float:
        """Seconds of a token without this drafter: plain, or what drafts in its place."""
        floors = [state.judged[mode] for mode in state.order[place_in_order + 1 :]]
        times = [each.token_s for each in floors if each.token_s and each.gate.state is State.DRAFTING]
        return min([plain_s, *times])

    def _placed(self, view: View, drafters: Drafters) -> None:
        state = self._states.setdefault(view.key, Gated(Budget(self._rules.probe_share)))
        bands = self._rules.bands if view.speculation.bands is None else view.speculation.bands
        state.band = place(bands, view.context, state.band, self._rules.hysteresis)
        modes = eligible(view, state.band, drafters).modes
        state.order = tuple(dict.fromkeys([*modes[:1], *(mode for mode in modes if mode == FLOOR_MODE)]))
        for mode in state.order:
            if mode not in state.judged:
                most, usual = limit(view.speculation, drafters[mode]), drafters[mode].default_draft_tokens
                state.judged[mode] = Judged(Gate(self._rules.gate), Length(min(usual, most), most))

    def _wants_refresh(self, view: View) -> bool:
        """A plain round is for all, so all must want it, or have nothing to lose by it."""
        state = self._states[view.key]
        wishes = [state.judged[mode].gate.wish() for mode in state.order]
        return Wish.REFRESH in wishes and state.budget.room(view.remaining, 0.0) > 0

    def _speeds(self, view: View, state: Gated, *, plain: bool) -> Mapping[str, Speed]:
        speeds = {mode: Speed(0, "gate", because="gate") for mode in view.hindrances.keys() | set(state.order)}
        speeds |= {band_mode: Speed(0, "gate") for band_mode in (state.band.modes if state.band else ())}
        for mode in () if plain else state.order:
            judged = state.judged[mode]
            hopeless = (
                judged.drafted >= self._rules.acceptance_drafts
                and judged.accepted < self._rules.acceptance_floor * judged.drafted
            )
            wish = judged.gate.wish()
            if hopeless:
                speeds[mode] = Speed(0, "acceptance")
            elif wish is Wish.PROBE and state.budget.room(view.remaining, 0.0) <= 0:
                continue
            elif wish is not Wish.REST:
                speeds[mode] = Speed(judged.length.now, gain=1.0, because="probe" if wish is Wish.PROBE else "speed")
                break
        return speeds
