"""Length bands as settings: in a file a list of tables, in flags and variables `0-20480:mtp,ngram;20480-:ngram`."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

WORDS = (
    "ascending bands FROM-TO:MODE,MODE;FROM-:MODE (in a file also a list of tables with `from`, `to` and `modes`) "
    "that do not overlap and name each drafter once at most"
)


class BandSetting(NamedTuple):
    """Contexts of `start` to `end` - 1 tokens, or from `start` on, prefer `modes` in this order."""

    start: int
    end: int | None
    modes: tuple[str, ...]


def bands(value: object, legal: Sequence[str]) -> tuple[BandSetting, ...]:
    """Read and check; raises ValueError."""
    if isinstance(value, str):
        read = [_text(part) for part in value.split(";")]
    elif isinstance(value, list | tuple):
        read = [part if isinstance(part, BandSetting) else _table(part) for part in value]
    else:
        raise ValueError("no list")
    reached: int | None = 0
    for band in read:
        overlaps = reached is None or band.start < reached
        empty = band.end is not None and band.end <= band.start
        if overlaps or empty or not band.modes or len(set(band.modes)) < len(band.modes):
            raise ValueError("overlapping, empty or repeating")
        if not set(band.modes) <= set(legal):
            raise ValueError("unknown mode")
        reached = band.end
    return tuple(read)


def _text(text: str) -> BandSetting:
    lengths, _, modes = text.partition(":")
    start, _, end = (part.strip() for part in lengths.partition("-"))
    return BandSetting(int(start), int(end) if end else None, tuple(mode.strip() for mode in modes.split(",")))


def _table(table: object) -> BandSetting:
    if not isinstance(table, Mapping) or not {"modes"} <= table.keys() <= {"from", "to", "modes"}:
        raise ValueError("no band")
    start, end, modes = table.get("from", 0), table.get("to"), table["modes"]
    if type(start) is not int or type(end) not in (int, type(None)) or not isinstance(modes, list):
        raise ValueError("wrong type")
    return BandSetting(start, end, tuple(map(str, modes)))
