"""What of the drafts that came is worth verifying, by what their drafters say of them.

How far to ask is decided by averages, before anybody has seen a draft. When the drafts are here, each sequence keeps
those that bring more than the time of their rows: a draft brings the probability that it and all before it are right.
What its row takes would bring its part of the plan's tokens a second elsewhere, and the wait is over.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.target.policy.acceptance import NEGLIGIBLE, Acceptance
from services.target.policy.calibration import Calibration
from services.target.policy.decision import Offer, Outcome

LOOK = 32
"""Of so many rounds of a drafter, one is verified as planned: what is never verified could become good unnoticed."""

PATIENCE = 0.002
"""Of a round's time, what the wait may grow by for drafts that are worth it only if they turn out to be good."""

FEW = 8
"""Sequences of a round up to which such drafts are asked for: with more, each has less room for them, and handling what
comes and is cut takes time too."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An offer to a sequence that drafts with `mode`. `planned`: drafts that are worth it on average; the rest was
    asked for in case they are better. `least`: so many are verified in any case."""

    offer: Offer
    mode: str
    greedy: bool
    planned: int
    least: int
    acceptance: Acceptance


class Trim:
    """Calibrations of all drafters, apart for sequences that take the likeliest token and that draw: of theirs fewer
    are kept."""

    def __init__(self) -> None:
        self._calibrations: dict[tuple[str, bool], Calibration] = {}
        self._rounds: dict[str, int] = {}

    def informed(self, mode: str, *, greedy: bool) -> bool:
        """What the drafter says of its drafts means something by now."""
        known = self._calibrations.get((mode, greedy))
        return known is not None and known.informed

    def lengths(
        self, arrived: Sequence[Arrived], rows: int, verify: Callable[[float], float], rate: float
    ) -> list[int]:
        """What to verify of each, in a round of `rows` sequences whose second is worth `rate` tokens."""
        looking = set()
        for mode in sorted({each.mode for each in arrived if each.offer.confidences}):
            self._rounds[mode] = self._rounds.get(mode, 0) + 1
            if self._rounds[mode] % LOOK == 0:
                looking.add(mode)
        lengths = [min(each.planned, each.offer.came) for each in arrived]
        judged = [
            (place, each, self._calibrations[each.mode, each.greedy])
            for place, each in enumerate(arrived)
            if each.mode not in looking and each.offer.confidences and self.informed(each.mode, greedy=each.greedy)
        ]
        as_planned = rows + sum(lengths) - sum(lengths[place] for place, _, _ in judged)
        came = sum(each.offer.came for _, each, _ in judged)
        price = rate * row_s(verify, as_planned, came)
        for place, each, calibration in judged:
            bias = each.acceptance.bias.factor
            lasting = calibration.lasting(each.offer.confidences, bias, max(price, NEGLIGIBLE))
            lengths[place] = max(lasting, min(each.least, each.offer.came))
        return lengths

    def learn(self, outcome: Outcome, acceptance: Acceptance, *, greedy: bool) -> None:
        """Count what was kept, and compare what was verified with what was said of it."""
        known = self._calibrations.get((outcome.mode, greedy))
        if not outcome.cut:
            acceptance.record(outcome.asked, outcome.drafted, outcome.accepted)
        elif known is None or not outcome.confidences:  # it was cut to a length that was fixed before any draft came
            acceptance.record(outcome.drafted, outcome.drafted, outcome.accepted)
        else:
            cut: Sequence[float] = ()
            if outcome.accepted == outcome.drafted:
                cut = known.chances(outcome.confidences, acceptance.bias.factor)[outcome.drafted :]
            acceptance.record(outcome.asked, outcome.came, outcome.accepted, cut)
        if outcome.confidences:
            self._calibrate(outcome, acceptance, greedy=greedy)

    def _calibrate(self, outcome: Outcome, acceptance: Acceptance, *, greedy: bool) -> None:
        tried = min(outcome.accepted + (outcome.kept > outcome.accepted), outcome.drafted)  # a stop judges no draft
        key = outcome.mode, greedy
        if key not in self._calibrations:
            self._calibrations[key] = Calibration()
        self._calibrations[key].learn(outcome.confidences, tried, outcome.accepted, acceptance.bias)

    def forget(self, mode: str) -> None:
        """The drafter is gone; what comes back under its name may be another."""
        self._calibrations = {key: each for key, each in self._calibrations.items() if key[0] != mode}
        self._rounds.pop(mode, None)


def row_s(verify: Callable[[float], float], rows: int, drafts: int) -> float:
    """Seconds that one of so many drafts adds to a forward of `rows`, on average. Each number of rows was measured
    apart and is some percent off, so the difference of two neighbours would say nothing."""
    return (verify(rows + drafts) - verify(rows)) / drafts if drafts else 0.0


def reach(
    modes: Sequence[str | None], planned: Sequence[int], most: Sequence[int], wait: Callable[[str, int, int], float],
    round_s: float,
) -> list[int]:  # fmt: skip
    """How far to ask, by sequence: up to one more than twice as planned, while a drafter takes hardly longer for it, in
    a round of `round_s`. `most` bounds each, but none is asked for less than planned. `wait`: seconds for drafts of
    (mode, sequences as bits, length)."""
    if len(modes) > FEW:
        return list(planned)
    longer = _longer(modes, planned, wait, PATIENCE * round_s)
    return [
        max(length, min(2 * length + 1, limit, longer[mode])) if mode and length else length
        for mode, length, limit in zip(modes, planned, most, strict=True)
    ]


def _longer(
    modes: Sequence[str | None], planned: Sequence[int], wait: Callable[[str, int, int], float], patience_s: float
) -> Mapping[str, int]:
    found = {}
    for mode in dict.fromkeys(filter(None, modes)):
        lengths = [length for name, length in zip(modes, planned, strict=True) if name == mode and length]
        longest, size = max(lengths, default=0), len(lengths).bit_length()
        reached, settled = longest, wait(mode, size, longest) + patience_s
        while reached <= 2 * longest and wait(mode, size, reached + 1) <= settled:
            reached += 1
        found[mode] = reached
    return found
