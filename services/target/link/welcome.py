"""What of a drafter's Welcome a target relies on. A drafter may be another's program, or of another version: what it
says of itself is checked here once, so that nothing behind has to doubt it."""

from collections.abc import Collection

from tandem.v1 import types_pb2
from tandem.v1.drafter_pb2 import DrafterDescription, Hello, Welcome

MODES = {
    types_pb2.SPECULATION_MODE_DFLASH,
    types_pb2.SPECULATION_MODE_DFLASH2,
    types_pb2.SPECULATION_MODE_MTP,
    types_pb2.SPECULATION_MODE_NGRAM,
}
"""What a drafter may be."""

MOST_DRAFTS = 15
"""Drafts that one round verifies of a sequence, whatever a drafter could propose."""


def usable(welcome: Welcome, hello: Hello) -> Welcome:
    """`welcome` to the target of `hello`, with refusals in the place of drafters that cannot be used, and lengths
    shortened to what a round verifies."""
    fit = Welcome()
    fit.CopyFrom(welcome)
    del fit.drafters[:]
    for each in welcome.drafters:
        if reason := _unfit(each, hello, {other.mode for other in fit.drafters}):
            fit.refusals.add(mode=each.mode, name=each.name, reason=reason)
            continue
        drafter = fit.drafters.add()
        drafter.CopyFrom(each)
        drafter.max_draft_tokens = most = min(each.max_draft_tokens, MOST_DRAFTS)
        drafter.default_draft_tokens = min(each.default_draft_tokens or most, most)
    for refusal in fit.refusals:
        if refusal.mode not in MODES:
            refusal.ClearField("mode")  # whoever reads the refusal would have to know it
    return fit


def _unfit(drafter: DrafterDescription, hello: Hello, taken: Collection[int]) -> str | None:
    """Why a drafter cannot be used; None when it can. It should refuse itself; where it does not, its needs must not
    become a step that fails."""
    if drafter.mode not in MODES:
        return f"its mode, number {drafter.mode}, is none that drafts here"
    if drafter.mode in taken:
        return "another drafter of the same mode came before it"
    if drafter.max_draft_tokens < 1:
        return "max_draft_tokens is 0: it drafts nothing"
    deepest = max(drafter.tap_layers, default=0)
    if deepest >= hello.layers:
        return f"it needs what layer {deepest} computes; the model has layers 0 to {hello.layers - 1}"
    return None
