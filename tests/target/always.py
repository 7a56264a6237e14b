"""A policy that always drafts, with what resolution alone gives: for tests of everything but the policy."""

from services.target.policy.bands import DEFAULT_BANDS, place
from services.target.policy.decision import Cut, Plan
from services.target.policy.resolve import resolve


class Always:
    """As long as asked for, or as long as the drafter usually does."""

    def __init__(self, left_out=()) -> None:
        self._left_out = left_out

    def left_out(self, view, drafters):
        return self._left_out

    def decide(self, views, drafters) -> Plan:
        return Plan({view.key: resolve(view, self._band(view), drafters, {}) for view in views})

    def cut(self, offers) -> Cut:
        return Cut([offer.came for offer in offers])

    def record(self, seen) -> None:
        pass

    def forget(self, key) -> None:
        pass

    def resting(self):
        return ()

    def _band(self, view):
        bands = DEFAULT_BANDS if view.speculation.bands is None else view.speculation.bands
        return place(bands, view.context, None, 0)
