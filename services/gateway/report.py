"""The speculation report of a request: its choices' reports summed, and its form in JSON."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tandem.v1.types_pb2 import Audit, ModeStatistics, OriginCounts, RoundDecision, SpeculationReport, SpeculationSwitch

from services.wire.codec import MODES, REASONS

ORIGINS = tuple(OriginCounts.DESCRIPTOR.fields_by_name)


def summed(reports: Sequence[SpeculationReport]) -> SpeculationReport:
    """What was asked and resolved is the first choice's; counts are sums; switches stand choice after choice."""
    total = SpeculationReport()
    total.CopyFrom(reports[0])
    for report in reports[1:]:
        total.exact &= report.exact
        total.inexact_reason = total.inexact_reason or report.inexact_reason
        for name in ("rounds", "drafted", "accepted"):
            setattr(total, name, getattr(total, name) + getattr(report, name))
        for name in ORIGINS:
            setattr(total.by_origin, name, getattr(total.by_origin, name) + getattr(report.by_origin, name))
        total.switches.extend(report.switches)
        total.decisions.extend(report.decisions)
        for statistics in report.by_mode:
            _add(total, statistics)
        _add_audit(total, report)
    return total


def _add_audit(total: SpeculationReport, more: SpeculationReport) -> None:
    """The first choice that differs is told; a request is audited when all its choices are."""
    if not (total.HasField("audit") and more.HasField("audit")):
        total.ClearField("audit")
        return
    checked = total.audit.checked + more.audit.checked
    if not total.audit.HasField("differs_at"):
        total.audit.CopyFrom(more.audit)
    total.audit.checked = checked


def _add(total: SpeculationReport, more: ModeStatistics) -> None:
    same = next((each for each in total.by_mode if each.mode == more.mode), None) or total.by_mode.add(mode=more.mode)
    same.rounds += more.rounds
    same.drafted += more.drafted
    same.accepted += more.accepted
    pairs = zip_longest(same.accepted_per_position, more.accepted_per_position, fillvalue=0)
    same.accepted_per_position[:] = [ours + theirs for ours, theirs in pairs]


def as_json(report: SpeculationReport, *, stats: bool, audit: bool, explain: bool = False) -> dict[str, Any]:
    """`stats` adds `by_mode`; `audit` adds the verdict, or null when there is none; `explain` adds `decisions`."""
    value: dict[str, Any] = {
        "requested": MODES.name(report.requested),
        "resolved": MODES.name(report.resolved),
        "reason": REASONS.name(report.reason),
        "strict": report.strict,
        "exact": report.exact,
        "inexact_reason": report.inexact_reason or None,
        "fingerprint": report.fingerprint,
        "seed": report.seed,
        "rounds": report.rounds,
        "drafted": report.drafted,
        "accepted": report.accepted,
        "by_origin": {name: getattr(report.by_origin, name) for name in ORIGINS},
        "mean_accepted_length": 1 + report.accepted / report.rounds if report.rounds else None,
        "switches": [_switch(each) for each in report.switches],
    }
    if stats:
        value["by_mode"] = {MODES.name(each.mode): _statistics(each) for each in report.by_mode}
    if audit:
        value["audit"] = _audit(report.audit) if report.HasField("audit") else None
    if explain:
        value["decisions"] = [_decision(each) for each in report.decisions]
    return value


def _decision(decision: RoundDecision) -> dict[str, Any]:
    names = ("at", "because", "asked", "came", "drafted", "accepted", "measured_seconds", "sequences")
    predicted = decision.predicted_seconds if decision.HasField("predicted_seconds") else None
    found = {name: getattr(decision, name) for name in names}
    return {"mode": MODES.name(decision.mode)} | found | {"predicted_seconds": predicted}


def _audit(audit: Audit) -> dict[str, Any]:
    found = {
        name: getattr(audit, name) if audit.HasField(name) else None for name in ("differs_at", "margin", "choice")
    }
    return {"checked": audit.checked} | found


def _switch(switch: SpeculationSwitch) -> dict[str, Any]:
    return {
        "at": switch.at,
        "from": MODES.name(getattr(switch, "from")),  # a keyword of Python
        "to": MODES.name(switch.to),
        "reason": REASONS.name(switch.reason),
    }


def _statistics(statistics: ModeStatistics) -> dict[str, Any]:
    return {
        "rounds": statistics.rounds,
        "drafted": statistics.drafted,
        "accepted": statistics.accepted,
        "accepted_per_position": list(statistics.accepted_per_position),
    }
