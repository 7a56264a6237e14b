"""The controller's choice for one round: what is believed to be the best or, now and then, what is worth trying."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache

from services.target.policy.acceptance import Prior
from services.target.policy.allot import Allotment, Choice, Costs, allot
from services.target.policy.assign import assign
from services.target.policy.case import Case, Chosen
from services.target.policy.explore import CLOSE, LEAST, lost_s, plainly, probe
from services.target.policy.rules import PolicyRules
from services.target.policy.timings import Timings

ENOUGH = 3
"""Tries of a drafter, by any sequence, after which its first guesses are worth something."""


def choose(cases: Sequence[Case], timings: Timings, priors: Mapping[str, Prior], rules: PolicyRules) -> Chosen | None:
    """None while nothing can be told of time: nobody decodes, or no forward was measured."""
    if not cases:
        return None
    strict = any(case.strict for case in cases)
    curve = timings.verify(sum(case.view.context for case in cases))
    if timings.calibrating and not strict:
        return _calibrate(cases, timings)
    if curve is None:
        return None
    costs = Costs(curve.at, cache(timings.draft))
    plain = plainly(len(cases), costs)
    new = {mode for mode, prior in priors.items() if prior.tries < ENOUGH or not timings.known(mode)}
    options = []
    for case in cases:
        room = case.state.budget.room(case.view.remaining, plain.seconds)
        allowed = [mode for mode in case.most if room > 0 or (mode not in new and case.state.mode != "none")]
        options.append(case.choices(priors, rules, allowed, new))
    ways, best = assign(options, costs)
    modes = [choice.mode if choice and length else None for choice, length in zip(ways, best.lengths, strict=True)]
    reasons = [
        "gate" if mode else _reason(case, each, timings, rules, alone=len(cases) == 1)
        for case, each, mode in zip(cases, options, modes, strict=True)
    ]
    chosen = Chosen(modes, reasons, ["speed"] * len(cases), best)
    resumed = any(mode and case.state.mode == "none" for case, mode in zip(cases, modes, strict=True))
    if resumed or new.intersection(filter(None, modes)):
        return replace(chosen, trial_rate=plain.rate)
    tried = _probe(cases, options, ways, chosen, costs, priors, new)
    if tried is None and not strict and timings.since_plain >= rules.gate.refresh and best.rate < CLOSE * plain.rate:
        tried = _all_plain(chosen, "refresh", plain, best.rate)
    if tried is not None and all(_affords(case, lost_s(tried.allotment, best), plain.seconds) for case in cases):
        return tried
    return chosen


def _calibrate(cases: Sequence[Case], timings: Timings) -> Chosen:
    """The very first rounds decode plainly, to know what that takes."""
    curve = timings.verify(sum(case.view.context for case in cases))
    seconds = curve.at(len(cases)) if curve else 0.0
    allotment = Allotment((0,) * len(cases), float(len(cases)), seconds)
    nothing: list[str | None] = [None] * len(cases)
    return Chosen(nothing, ["gate"] * len(cases), ["calibrate"] * len(cases), allotment)


def _all_plain(chosen: Chosen, because: str, plain: Allotment, rate: float) -> Chosen:
    count = len(chosen.modes)
    return replace(chosen, modes=[None] * count, because=[because] * count, allotment=plain, trial_rate=rate)


def _probe(
    cases: Sequence[Case],
    options: Sequence[Mapping[str, Choice]],
    ways: Sequence[Choice | None],
    chosen: Chosen,
    costs: Costs,
    priors: Mapping[str, Prior],
    new: Collection[str],
) -> Chosen | None:
    """The best round with what is due to be tried in it."""
    due = probe([case.state for case in cases], options, chosen.modes, new)
    if not due:
        return None
    tries = {
        index: cases[index].state.choice(mode, len(options[index][mode].gains), priors, least=LEAST)
        for index, mode in due.items()
    }
    allotment = allot([tries.get(index, way) for index, way in enumerate(ways)], costs)
    modes = [due.get(index, mode) for index, mode in enumerate(chosen.modes)]
    because = ["probe" if index in due else "speed" for index in range(len(cases))]
    return replace(chosen, modes=modes, because=because, allotment=allotment, trial_rate=chosen.allotment.rate)


def _affords(case: Case, lost: float, plain_s: float) -> bool:
    return lost <= case.state.budget.room(case.view.remaining, plain_s)


def _reason(case: Case, options: Mapping[str, Choice], timings: Timings, rules: PolicyRules, *, alone: bool) -> str:
    """Why it rests: its drafts are no good, or there is too much else to do, or they are too slow."""
    if case.most and not options and any(case.state.hopeless(mode, rules) for mode in case.most):
        return "acceptance"
    if alone or not options:
        return "gate"
    if case.state.mode == "none" and case.state.reason in ("gate", "load"):
        return case.state.reason
    curve = timings.verify(case.view.context)
    assert curve is not None, "there is one for all together"
    _, best = assign([options], Costs(curve.at, timings.draft))
    return "load" if best.lengths[0] else "gate"
