"""How long a plan stands. The more sequences, the less one more round tells, and the less who comes or goes."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from services.target.policy.acceptance import Prior
from services.target.policy.case import Case, Chosen
from services.target.policy.decision import View
from services.target.policy.rules import PolicyRules

JOIN = "join"
"""Rests until the next plan, because none of its drafts is worth what the others' are."""

SEQUENCES_PER_ROUND = 4
"""Sequences for which a plan is good for one round more."""

SEQUENCES_PER_CHANGE = 4
"""Sequences for which it stands one more that comes or goes."""


class Standing:
    """What a plan was made for, and what has changed since."""

    def __init__(self) -> None:
        self._states: Mapping[int, tuple[object, ...]] = {}
        self._drafters: tuple[str, ...] = ()
        self._rounds = self._changes = 0

    def begin(self, views: Sequence[View], drafters: Iterable[str], *, settled: bool) -> None:
        """A new plan; one that tries something is good for its round only."""
        self._states, self._drafters = _states(views), tuple(drafters)
        self._rounds = len(views) // SEQUENCES_PER_ROUND if settled else 0
        self._changes = len(views) // SEQUENCES_PER_CHANGE

    def joining(self, views: Sequence[View], drafters: Iterable[str]) -> Sequence[View] | None:
        """Who came, or begins to decode, since the last round; None when a new plan is due. Who may not rest, and who
        decodes and can use other drafters than before, must not wait for it."""
        if self._rounds <= 0 or tuple(drafters) != self._drafters:
            return None
        before, now = self._states, _states(views)
        joining = [view for view in views if before.get(view.key) != now[view.key]]
        if any(view.decoding and (view.speculation.strict or _decoded(before, view)) for view in joining):
            return None
        self._changes -= len(before.keys() - now.keys()) + sum(view.decoding for view in joining)
        self._rounds -= 1
        self._states = now
        return joining if self._changes >= 0 else None


def _states(views: Sequence[View]) -> Mapping[int, tuple[object, ...]]:
    return {view.key: (view.decoding, *view.hindrances) for view in views}


def _decoded(before: Mapping[int, tuple[object, ...]], view: View) -> bool:
    return view.key in before and before[view.key][0] is True


def left(chosen: Chosen, cases: Sequence[Case], keys: Collection[int]) -> tuple[Chosen, list[Case]]:
    """A choice and its cases without those that are not among `keys` any more."""
    stay = [index for index, case in enumerate(cases) if case.view.key in keys]
    return chosen.of(stay), [cases[index] for index in stay]


def joined(chosen: Chosen, case: Case, priors: Mapping[str, Prior], rules: PolicyRules) -> Chosen:
    """A choice with one case more. It takes a drafter that is asked anyway, no longer drafts than somebody else, and
    only such as are worth more than those that the plan left out."""
    longest: dict[str, int] = {}
    for mode, length in zip(chosen.modes, chosen.allotment.lengths, strict=True):
        if mode:
            longest[mode] = max(longest.get(mode, 0), length)
    best, mode, length = 0.0, None, 0
    for choice in case.choices(priors, rules, list(longest), ()).values():
        price = chosen.allotment.price * choice.rows
        worth = [gain for gain in choice.gains[: longest[choice.mode]] if gain > price]
        if (brought := sum(worth) - price * len(worth)) > best or (worth and mode is None):
            best, mode, length = brought, choice.mode, len(worth)
    return chosen.and_also(mode, length, "speed" if mode else JOIN)
