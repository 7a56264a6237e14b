"""How many drafts each sequence of a round gets, so that the round keeps the most tokens a second.

Drafts are added in the order of what they bring, each sequence's first before its second, and the best place to stop is
where expected tokens over expected seconds is greatest. Nothing at all is one of the places, so that no answer is
expected to be slower than plain decoding. Of equal sequences none gets two drafts more than another, and all get fewer
the more share a forward whose time grows with its rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

LOOKS = 64
"""Places to stop that are weighed against each other, of many drafts evenly spread."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One sequence may draft with `mode`. `gains[i]`: the probability that draft i is kept, falling. `rows`: drafts
    that come for one that is asked for. `least`: it drafts so many in any case."""

    mode: str
    gains: Sequence[float]
    rows: float = 1.0
    least: int = 0


@dataclass(frozen=True, slots=True)
class Allotment:
    """`lengths` of the drafts in the order of the choices, and what the round is expected to keep and to take;
    `wait_s` of that for drafts. `price`: what the first draft that was left out was expected to bring for a row."""

    lengths: tuple[int, ...]
    tokens: float
    seconds: float
    wait_s: float = 0.0
    price: float = float("inf")

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a forward of so many rows, and of the wait for drafts of (mode, sequences as bits, length)."""

    verify: Callable[[float], float]
    draft: Callable[[str, int, int], float]


class _Turn:
    """The wait for drafts, as sequences and lengths are added; drafters of one process work one after the other."""

    def __init__(self, costs: Costs) -> None:
        self.seconds = 0.0
        self._costs = costs
        self._asked: dict[str, tuple[int, int, float]] = {}  # mode -> sequences, longest, seconds

    def add(self, mode: str, length: int) -> None:
        sequences, longest, before = self._asked.get(mode, (0, 0, 0.0))
        if length <= longest and (length > 1 or sequences & (sequences + 1)):
            self._asked[mode] = (sequences + (length == 1), longest, before)  # as long a wait as before
            return
        sequences, longest = sequences + (length == 1), max(longest, length)
        now = self._costs.draft(mode, sequences.bit_length(), longest)
        self._asked[mode] = (sequences, longest, now)
        self.seconds += now - before


def allot(choices: Sequence[Choice | None], costs: Costs) -> Allotment:
    """The best lengths. None: a sequence that decodes plainly."""
    drafts = []
    for index, choice in enumerate(choices):
        if choice is None:
            continue
        for place, gain in enumerate(choice.gains):
            value = float("inf") if place < choice.least else gain / choice.rows
            drafts.append((-value, place, index, gain, choice))
    drafts.sort(key=itemgetter(0, 1, 2))
    forced = sum(choice.least for choice in choices if choice)
    turn, tokens, rows = _Turn(costs), float(len(choices)), float(len(choices))
    best: tuple[float, int, float, float, float] | None = None
    stride = max(1, len(drafts) // LOOKS)
    for count in range(len(drafts) + 1):
        if count:
            _, place, _, gain, choice = drafts[count - 1]
            tokens, rows = tokens + gain, rows + choice.rows
            turn.add(choice.mode, place + 1)
        if count < forced or (count % stride and count < len(drafts)):
            continue
        seconds = costs.verify(rows) + turn.seconds
        if best is None or tokens > best[0] * seconds:
            best = (tokens / seconds, count, tokens, seconds, turn.seconds)
    assert best is not None, "the last place is weighed"
    lengths = [0] * len(choices)
    for _, place, index, _, _ in drafts[: best[1]]:
        lengths[index] = place + 1
    price = -drafts[best[1]][0] if best[1] < len(drafts) else 0.0
    return Allotment(tuple(lengths), *best[2:], price=price)
