"""What might be run instead of what is believed to be the best, to learn whether it still is, and what that loses.

In a batch a try costs everybody time, so everybody must be able to afford it, and who is soon to try it comes too.
"""

from collections.abc import Collection, Mapping, Sequence

from services.target.policy.allot import Allotment, Choice, Costs
from services.target.policy.steered import Steered

LEAST = 2
"""Drafts of a try: one alone tells little."""

CLOSE = 1.3
"""Drafting that wins by less than this factor wants the plain time to be fresh."""


def lost_s(tried: Allotment, best: Allotment) -> float:
    """Seconds that `tried` is expected to lose: `best` would take so much less for as many tokens."""
    return max(tried.seconds - tried.tokens / best.rate, 0.0)


def probe(
    states: Sequence[Steered],
    options: Sequence[Mapping[str, Choice]],
    used: Sequence[str | None],
    new: Collection[str],
) -> Mapping[int, str]:
    """Who would try which drafter, by index: the one that waited longest, and who may join it. One of the `new`, of
    which little is known, need not wait."""
    waiting = [
        (state.rounds - state.tries[mode].last, mode)
        for state, each, now in zip(states, options, used, strict=True)
        for mode in each
        if mode != now and (state.tries[mode].due(state.rounds) or mode in new)
    ]
    if not waiting:
        return {}
    _, mode = max(waiting)
    return {
        index: mode
        for index, (state, each, now) in enumerate(zip(states, options, used, strict=True))
        if mode in each and mode != now and (state.tries[mode].may_join(state.rounds) or mode in new)
    }


def plainly(sequences: int, costs: Costs) -> Allotment:
    """The round without drafts."""
    return Allotment((0,) * sequences, float(sequences), costs.verify(sequences))
