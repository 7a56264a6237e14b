"""Two pictures as SVG: how fast each mode is, and how far its drafts are kept."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench import svg

COLOURS = {
    "none": "#8a8f98",
    "ngram": "#d9822b",
    "mtp": "#2e8b57",
    "dflash": "#7a5195",
    "dflash2": "#c2410c",
    "auto": "#1b6ca8",
}
WIDTH, LEFT, TOP, ROW = 900, 90, 44, 8
PANEL, HEIGHT = 270, 190

Rows = Sequence[Mapping[str, Any]]


def speeds(rows: Rows) -> str:
    """Speed over plain decoding with its interval: a panel for each temperature and batch, a bar for each mode."""
    parts, top = [svg.text(LEFT, 16, "speed over plain decoding", "start", bold=True), *_legend(rows)], TOP + 8
    scale = (WIDTH - LEFT - 60) / max((row["to"] for row in rows), default=1.0)
    for way in dict.fromkeys((row["T"], row["batch"]) for row in rows):
        parts.append(svg.text(LEFT, top + 10, f"temperature {way[0]}, {way[1]} at once", "start"))
        begin = top = top + 18
        here = [row for row in rows if (row["T"], row["batch"]) == way and row["mode"] != "none"]
        for workload in dict.fromkeys(row["workload"] for row in here):
            bars = [row for row in here if row["workload"] == workload]
            parts.append(svg.text(LEFT - 6, top + ROW * len(bars) / 2 + 4, workload, "end", size=11))
            for row in bars:
                parts += _bar(row, top, scale)
                top += ROW
            top += 5
        parts.append(_line(LEFT + scale, begin - 2, LEFT + scale, top, "#999"))
        top += 12
    return svg.picture(WIDTH, top, parts)


def _bar(row: Mapping[str, Any], top: float, scale: float) -> Iterator[str]:
    width, middle = row["/ none"] * scale, top + (ROW - 1) / 2
    colour = COLOURS[row["mode"]]
    yield f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{ROW - 1}" fill="{colour}"/>'
    yield _line(LEFT + row["from"] * scale, middle, LEFT + row["to"] * scale, middle, "#222")
    yield svg.text(LEFT + row["to"] * scale + 4, top + ROW - 1, f"{row['/ none']:.2f}", "start", size=8)


def accepted(rows: Rows) -> str:
    """The part of the rounds with drafts that kept more than 0, 1, 2, ... of them: a panel for each workload, of the
    first way of asking that was measured."""
    first = [row for row in rows if all(row[name] == rows[0][name] for name in ("T", "batch")) and row["kept beyond"]]
    workloads = list(dict.fromkeys(row["workload"] for row in first))
    most = max((len(row["kept beyond"]) for row in first), default=1)
    title = "rounds that kept the draft at a position"
    if first:
        title += f"; temperature {first[0]['T']}, {first[0]['batch']} at once"
    parts = [svg.text(LEFT, 16, title, "start", bold=True), *_legend(first)]
    for index, workload in enumerate(workloads):
        left, top = 40 + PANEL * 1.05 * (index % 3), TOP + 24 + HEIGHT * (index // 3)
        lines = {row["mode"]: row["kept beyond"] for row in first if row["workload"] == workload}
        parts += _panel(workload, lines, left, top, most)
    return svg.picture(WIDTH, TOP + 24 + HEIGHT * -(-len(workloads) // 3), parts)


def _panel(name: str, lines: Mapping[str, Sequence[float]], left: float, top: float, most: int) -> Iterator[str]:
    wide, high = PANEL - 30, HEIGHT - 50
    step = wide / max(most - 1, 1)
    yield svg.text(left, top - 6, name, "start")
    for part in (0.0, 0.5, 1.0):
        y = top + high * (1 - part)
        yield _line(left, y, left + wide, y, "#ddd")
        yield svg.text(left - 4, y + 3, f"{part:.0%}", "end", size=9)
    for position in range(0, most, 2):
        yield svg.text(left + step * position, top + high + 12, str(position + 1), "middle", size=9)
    for mode, shares in lines.items():
        points = " ".join(f"{left + step * at:.1f},{top + high * (1 - share):.1f}" for at, share in enumerate(shares))
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[mode]}" stroke-width="1.5"/>'


def _legend(rows: Rows) -> Iterator[str]:
    modes = [mode for mode in dict.fromkeys(row["mode"] for row in rows) if mode != "none"]
    for index, mode in enumerate(modes):
        x = LEFT + index * 90
        yield f'<rect x="{x}" y="25" width="10" height="10" fill="{COLOURS[mode]}"/>'
        yield svg.text(x + 14, 34, mode, "start")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'
