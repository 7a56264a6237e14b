"""Which drafters requests in `auto` have a use for. What a drafter is fed of a prompt costs time even if it is never
asked, above all where it shares processors with the target; so what hardly anybody used of late is left out.
"""

from collections.abc import Collection, Mapping, Sequence

from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.bands import Band
from services.target.request import Speculation

NEW = 1 / 128
"""Of one more round of one sequence in the share that a drafter was used in."""

SELDOM = 0.1
"""A drafter that was used in less of the rounds is left out."""

SCOUT = 8
"""Of so many sequences in a row that would leave something out, one does not, to see whether that is still right."""


class Usage:
    """By band, since what wins in short contexts may not in long ones. Every drafter begins as one that is used."""

    def __init__(self) -> None:
        self._shares: dict[Band, dict[str, float]] = {}
        self._left_out = 0  # sequences since the last scout

    def record(self, band: Band, able: Collection[str], used: str | None) -> None:
        """A round of a sequence for which `used` drafted, as the best of those of `able`. To be told only of those that
        were chosen freely."""
        shares = self._shares.setdefault(band, {})
        for mode in able:
            share = shares.get(mode, 1.0)
            shares[mode] = share + NEW * ((mode == used) - share)

    def left_out(
        self,
        speculation: Speculation,
        bands: Sequence[Band],
        lengths: range,
        drafters: Mapping[str, DrafterDescription],
    ) -> frozenset[str]:
        """Those of `drafters` that a sequence does without whose context will be of `lengths` tokens."""
        if not chosen_freely(speculation):
            return frozenset()
        reached = [
            band for band in bands if band.start < lengths.stop and (band.end is None or lengths.start < band.end)
        ]
        unused = frozenset(
            mode
            for mode, drafter in drafters.items()
            if (drafter.tap_layers or drafter.needs_final_hidden)  # any other is fed token ids, which is nothing
            and all(self._shares.get(band, {}).get(mode, 1.0) < SELDOM for band in reached if mode in band.modes)
        )
        hoped_for = unused & {mode for band in reached for mode in band.modes}
        if hoped_for:
            self._left_out = (self._left_out + 1) % SCOUT
        return unused if self._left_out else unused - hoped_for

    def forget(self, mode: str) -> None:
        """The drafter is gone; what comes back under its name may be another."""
        for shares in self._shares.values():
            shares.pop(mode, None)


def chosen_freely(speculation: Speculation) -> bool:
    """Other requests use what they were told to, so their rounds say nothing of what is worth it."""
    return speculation.mode == "auto" and not speculation.strict and speculation.bands is None
