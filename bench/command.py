"""What every measurement has in common on the command line, and how its result is printed."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.machine import Use, doubts, facts
from bench.pairs import Interval
from services.config.cpus import cpu_quota
from services.config.folders import cache_root
from services.shipped.prepare import prepare

REPEATS = 7
QUICK = "--quick: too few tokens and repeats to mean anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`threads`: of every process that computes. `model`: a Hugging Face folder."""

    repeats: int
    quick: bool
    threads: int
    model: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`rows` are for people, `ratios` are what was asked, `samples` are all numbers that they come from."""

    rows: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, Interval] = field(default_factory=dict)
    samples: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def main(name: str, about: str | None, measure: Callable[[Options], Result]) -> None:
    """Read the command line, measure, print. JSON is one document on stdout."""
    given = arguments(name, about).parse_args()
    print_document(*documented(name, options_of(given), measure), as_json=given.json)


def arguments(name: str, about: str | None, *, repeats: int = REPEATS) -> argparse.ArgumentParser:
    """What every measurement takes. `repeats`: how many, when nobody says."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parser.add_argument("--repeats", type=positive, help=f"default: {repeats}, or {min(repeats, 2)} with --quick")
    parser.set_defaults(usual_repeats=repeats)
    parser.add_argument("--quick", action="store_true", help="tiny counts, to see that it works")
    parser.add_argument("--threads", type=positive, help="default: the CPU quota, or all processors")
    parser.add_argument("--model", type=Path, help="Hugging Face folder; default: the embedded model")
    return parser


def options_of(given: argparse.Namespace) -> Options:
    return Options(
        repeats=given.repeats or (min(given.usual_repeats, 2) if given.quick else given.usual_repeats),
        quick=given.quick,
        threads=given.threads or cpu_quota() or os.cpu_count() or 1,
        model=given.model or prepare(cache=cache_root()),
    )


def documented(name: str, options: Options, measure: Callable[[Options], Result]) -> tuple[dict[str, Any], Result]:
    """Measure, and put beside the result what it depends on."""
    load, begin = os.getloadavg()[0], Use.now()
    result = measure(options)
    used = Use.now().since(begin)
    document = {
        "bench": name,
        "warnings": [QUICK] * options.quick + doubts(load, used) + list(result.warnings),
        "environment": facts(options.threads) | {"load average before": load, "processors used": used},
        "settings": {"repeats": options.repeats, "model": options.model.name} | dict(result.settings),
        "rows": result.rows,
        "ratios": {name: asdict(each) for name, each in result.ratios.items()},
        "samples": result.samples,
    }
    return document, result


def print_document(document: Mapping[str, Any], result: Result, *, as_json: bool) -> None:
    print(json.dumps(document, indent=1) if as_json else _readable(document, result.ratios))


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _readable(document: Mapping[str, Any], ratios: Mapping[str, Interval]) -> str:
    lines = [f"{name}: {value}" for part in ("environment", "settings") for name, value in document[part].items()]
    width = max(map(len, ratios), default=0)
    ratio_lines = [f"{name:<{width}}  {each}" for name, each in ratios.items()]
    if ratio_lines:
        ratio_lines.insert(0, "median ratio [95 % interval]")
    warnings = [f"WARNING: {warning}" for warning in document["warnings"]]
    return "\n\n".join("\n".join(part) for part in (lines, table(document["rows"]), ratio_lines, warnings) if part)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns in the order in which the first row has them. Lists are for documents, and left out."""
    names = [name for name, value in rows[0].items() if not isinstance(value, list)]
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(part)}" for name, part in value.items())
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
