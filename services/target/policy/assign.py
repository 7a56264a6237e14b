"""Which drafter each sequence of a round uses: ways to give them out, weighed as wholes.

Drafters of one process work one after the other, so a second one must be worth its wait to everybody. The ways that are
weighed are: one drafter for all who can use it, for each drafter; and for each sequence what suits it best by itself.
"""

from collections.abc import Iterator, Mapping, Sequence

from services.target.policy.acceptance import POSITIONS
from services.target.policy.allot import Allotment, Choice, Costs, allot

Choices = Sequence[Choice | None]


def assign(options: Sequence[Mapping[str, Choice]], costs: Costs) -> tuple[Choices, Allotment]:
    """The best way, and its lengths. `options`: by sequence its choices by mode, best liked first; with none it decodes
    plainly. Between equals the way that is liked better."""
    best: tuple[Choices, Allotment] | None = None
    for way in _one_for_all(options):
        best = _better(best, way, costs)
    assert best is not None
    if len(options) > 1 and any(len(each) > 1 for each in options):
        best = _better(best, _each_its_own(options, costs, best[1].rate), costs)
    return best


def _better(best: tuple[Choices, Allotment] | None, way: Choices, costs: Costs) -> tuple[Choices, Allotment]:
    allotment = allot(way, costs)
    return (way, allotment) if best is None or allotment.rate > best[1].rate else best


def _one_for_all(options: Sequence[Mapping[str, Choice]]) -> Iterator[Choices]:
    modes = list(dict.fromkeys(mode for each in options for mode in each))
    seen = set()
    for mode in modes or [""]:
        way = tuple(each.get(mode) or next(iter(each.values()), None) for each in options)
        names = tuple(choice.mode if choice else "" for choice in way)
        if names not in seen:
            seen.add(names)
            yield way


def _each_its_own(options: Sequence[Mapping[str, Choice]], costs: Costs, rate: float) -> Choices:
    """For each the drafter whose drafts bring most beyond what their time would bring elsewhere, at `rate` tokens/s."""
    count = len(options)
    row = rate * (costs.verify(5.0 * count) - costs.verify(count)) / (4 * count)

    waits = {
        mode: [rate * costs.draft(mode, count.bit_length(), length) / count for length in range(1, POSITIONS + 1)]
        for mode in {mode for each in options for mode in each}
    }

    def worth(choice: Choice) -> float:
        best, kept, used = 0.0, 0.0, 0.0
        price = choice.rows * row
        for gain, wait in zip(choice.gains, waits[choice.mode], strict=False):
            kept, used = kept + gain, used + price
            best = max(best, kept - used - wait)
        return best

    return tuple(max(each.values(), key=worth) if each else None for each in options)
