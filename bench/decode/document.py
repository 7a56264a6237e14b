"""The measurement as a page of documentation with its plots."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.decode.markdown import Rows, conditions, grouped, interval, table
from bench.decode.plots import accepted, speeds
from bench.decode.rows import AGAINST_BEST, COUNTED, LOOP, label

HEAD = """\
# What each drafter buys

Written by `python -m bench.decode --write docs`; `bench/README.md` says how to read it.

Speed is that of mode `none` in tokens a second, and of the others as a multiple of it, with the 95 % interval over
turns. All modes gave the same tokens. A mode that is named always drafts; only `auto` may rest. Its last column is
against the best of the other modes in the same row, known only afterwards.
"""
PLOTS = """\
![Speed over plain decoding](decode-speed.svg)

![Drafts kept by position](decode-accepted.svg)
"""
LENGTHS = """\
## Accepted

Tokens that a round with drafts brought, on average: the drafts that were kept, and one.
"""
POSITIONS = """\
## Accepted by position

Percent of the rounds with drafts that kept more than 0, 1, 2, ... of them. A round that asked for fewer counts as one
that did not keep more.
"""
LOOPS = """\
## Answers that loop

They say the same three times in a row, so that any drafter that looks back is right for ever, and count nowhere above.
"""


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """`decode.md`, `decode-speed.svg` and `decode-accepted.svg`."""
    rows = document["rows"]
    (folder / "decode.md").write_text(markdown(document))
    (folder / "decode-speed.svg").write_text(speeds(_of_kind(rows, COUNTED)))
    (folder / "decode-accepted.svg").write_text(accepted(_of_kind(rows, COUNTED)))


def markdown(document: Mapping[str, Any]) -> str:
    counted, loop = (_of_kind(document["rows"], kind) for kind in (COUNTED, LOOP))
    parts = [HEAD, conditions(document)]
    parts += [f"**{warning}**\n" for warning in document["warnings"]]
    parts += [PLOTS, *_speeds(counted, document["ratios"], "##")]
    parts += [LENGTHS, _lengths(counted), POSITIONS, _positions(counted)]
    if loop:
        parts += [LOOPS, *_speeds(loop, document["ratios"], "###"), _lengths(loop)]
    return "\n".join(parts)


def _of_kind(rows: Rows, kind: str) -> Rows:
    return [row for row in rows if row["kind"] == kind]


def _speeds(rows: Rows, ratios: Mapping[str, Mapping[str, float]], level: str) -> Iterator[str]:
    for (temperature, batch), here in grouped(rows, "T", "batch").items():
        yield f"{level} Temperature {temperature}, {batch} at once\n"
        drafted = _modes(here)[1:]
        best = [AGAINST_BEST] if "auto" in drafted else []
        lines = []
        for (workload,), modes in grouped(here, "workload").items():
            by_mode = {row["mode"]: row for row in modes}
            cells = [workload, f"{by_mode['none']['tokens/s']:.1f}", *(_faster(by_mode[mode]) for mode in drafted)]
            lines.append(cells + [_against_best(by_mode["auto"], ratios) for _ in best])
        yield table(["", "none, tokens/s", *drafted, *best], lines)


def _faster(row: Mapping[str, Any]) -> str:
    return interval(row["/ none"], row["from"], row["to"])


def _against_best(row: Mapping[str, Any], ratios: Mapping[str, Mapping[str, float]]) -> str:
    found = ratios[f"{label(row['workload'], row['T'], row['batch'], row['kind'])}: {AGAINST_BEST}"]
    return f"{interval(found['median'], found['low'], found['high'])} ({row['best fixed']})"


def _lengths(rows: Rows) -> str:
    return _by_mode(rows, lambda row: f"{row['accepted']:.2f}" if row["accepted"] else "")


def _positions(rows: Rows) -> str:
    return _by_mode(rows, lambda row: " ".join(f"{share:.0%}"[:-1] for share in row["kept beyond"]))


def _by_mode(rows: Rows, cell: Callable[[Mapping[str, Any]], str]) -> str:
    """A line for each way of asking, a column for each mode that drafts."""
    drafted = _modes(rows)[1:]
    lines = [
        [*map(str, key), *(cell(row) for row in here if row["mode"] in drafted)]
        for key, here in grouped(rows, "workload", "T", "batch").items()
    ]
    return table(["", "temperature", "at once", *drafted], lines)


def _modes(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["mode"] for row in rows))
