"""Which drafter a sequence uses in the coming round, and how many drafts it may ask for. Never changes a token.

A pure function of the request, the context, the drafters that are up and what keeps them from drafting for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.request import DRAFTED_MODES, Speculation


@dataclass(frozen=True, slots=True)
class Decision:
    """`mode` runs; `reason` says why it is not what was asked for; `max_draft_tokens` is 0 exactly for `none`."""

    mode: str
    reason: str | None = None
    max_draft_tokens: int = 0


def decide(
    speculation: Speculation, context: int, drafters: Mapping[str, DrafterDescription], hindrances: Mapping[str, str]
) -> Decision:
    """Choose for a sequence of `context` tokens: the explicit mode, or the first that can run for `auto`. `hindrances`:
    by mode, the reason for which a drafter that is up cannot draft for this sequence now.

    An explicit mode never turns into another drafter: if it cannot run, the sequence decodes plainly and says why.
    """
    if speculation.mode == "none":
        return Decision("none")
    wanted = DRAFTED_MODES if speculation.mode == "auto" else (speculation.mode,)
    reasons = []
    for mode in wanted:
        drafter = drafters.get(mode)
        if drafter is None:
            continue
        if drafter.HasField("context_length") and context >= drafter.context_length:
            reasons.append("context")
        elif mode in hindrances:
            reasons.append(hindrances[mode])
        else:
            length = speculation.max_draft_tokens or drafter.default_draft_tokens
            return Decision(mode, None, min(length, drafter.max_draft_tokens))
    return Decision("none", reasons[0] if reasons else "drafter_not_loaded")
