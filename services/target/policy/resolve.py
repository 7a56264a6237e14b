"""From what is asked for to what runs: explicit mode, eligibility, length, memory and load, speed, in this order.

A pure function of the request, the sequence, the drafters that are up and what measurements say of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.bands import Band
from services.target.policy.decision import Decision, View
from services.target.request import Speculation


@dataclass(frozen=True, slots=True)
class Eligible:
    """Drafters that could draft now, best liked first; when there are none, `reason` says why."""

    modes: tuple[str, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """What measurements say of one drafter for one sequence: draft `length` tokens, or rest (0) for `reason`. Of those
    that draft, the one with the greatest `gain` runs; between equals, the one that is liked better."""

    length: int
    reason: str | None = None
    gain: float = 0.0
    because: str = "speed"


def eligible(view: View, band: Band | None, drafters: Mapping[str, DrafterDescription]) -> Eligible:
    """Who can draft for a sequence in `band`. An explicit mode never turns into another drafter, and knows no bands."""
    mode = view.speculation.mode
    if mode == "none":
        return Eligible(())
    if mode != "auto":
        wanted: tuple[str, ...] = (mode,)
    elif band is None:
        return Eligible((), "context")
    else:
        wanted = band.modes
    reasons, able = [], []
    for each in wanted:
        drafter = drafters.get(each)
        if drafter is None:
            continue
        if drafter.HasField("context_length") and view.context >= drafter.context_length:
            reasons.append("context")
        elif each in view.hindrances:
            reasons.append(view.hindrances[each])
        else:
            able.append(each)
    if able:
        return Eligible(tuple(able))
    return Eligible((), reasons[0] if reasons else "drafter_not_loaded")


def limit(speculation: Speculation, drafter: DrafterDescription) -> int:
    """The longest draft of a round."""
    return min(speculation.max_draft_tokens or drafter.max_draft_tokens, drafter.max_draft_tokens)


def resolve(
    view: View, band: Band | None, drafters: Mapping[str, DrafterDescription], speeds: Mapping[str, Speed]
) -> Decision:
    """The decision for one sequence. `speeds`: by mode; a drafter that is missing there has nothing against it.

    `strict` forbids to rest, and nothing but that."""
    able = eligible(view, band, drafters)
    if not able.modes:
        return Decision("none", able.reason, because=able.reason or "asked")
    usual = view.speculation.max_draft_tokens
    standard = {mode: Speed(usual or drafters[mode].default_draft_tokens, because="asked") for mode in able.modes}
    judged = {mode: speeds.get(mode, standard[mode]) for mode in able.modes}
    if view.speculation.strict:
        judged = {mode: speed if speed.length else standard[mode] for mode, speed in judged.items()}
    drafting = [mode for mode in able.modes if judged[mode].length > 0]
    if not drafting:
        reason = judged[able.modes[0]].reason
        return Decision("none", reason, because=reason or "speed", eligible=able.modes)
    mode = max(drafting, key=lambda each: judged[each].gain)  # the first of equals
    length = min(judged[mode].length, limit(view.speculation, drafters[mode]))
    return Decision(mode, None, length, judged[mode].because, eligible=able.modes)
