"""`tandem explain`: what was decided for each round of a request, and what came of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.console.posted import read, report_of
from services.errors import InvalidRequest, Unavailable

COLUMNS = ("at", "mode", "asked", "came", "verified", "kept", "predicted", "measured", "shared", "because")


def recorded(path: Path, *, address: str) -> dict[str, Any]:
    """The report of the request in a file, run with a record, or the report that an earlier run left there."""
    found = read(path)
    report = found.get("speculation") if isinstance(found.get("speculation"), dict) else found
    if isinstance(report, dict) and isinstance(report.get("decisions"), list):
        return report
    report = report_of(found, path, wish="explain", address=address)
    if not report.get("decisions"):
        raise Unavailable("no round was recorded: the answer had one token, or its target records none")
    return report


def lines(report: dict[str, Any]) -> Iterator[str]:
    """A head, a line for each round, and what it all came to."""
    yield _line(dict(zip(COLUMNS, COLUMNS, strict=True)))
    try:
        for each in report["decisions"]:
            yield _line(_row(each))
        yield _sum(report)
    except (KeyError, TypeError) as error:
        raise InvalidRequest(f"this is no report with decisions: {error}") from None


def as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=1)


def _row(each: dict[str, Any]) -> dict[str, object]:
    predicted = each["predicted_seconds"]
    return {
        "at": each["at"],
        "mode": each["mode"],
        "asked": each["asked"],
        "came": each.get("came", each["drafted"]),  # a report of before drafts were cut does not tell
        "verified": each["drafted"],
        "kept": each["accepted"],
        "predicted": "-" if predicted is None else f"{predicted * 1e3:.2f} ms",
        "measured": f"{each['measured_seconds'] * 1e3:.2f} ms",
        "shared": each["sequences"],
        "because": each["because"],
    }


def _line(row: dict[str, object]) -> str:
    numbers = "".join(f"{row[name]!s:>9}" for name in ("asked", "came", "verified", "kept"))
    times = "".join(f"{row[name]!s:>12}" for name in ("predicted", "measured"))
    return f"{row['at']!s:>6}  {row['mode']!s:<8}{numbers}{times}{row['shared']!s:>8}  {row['because']}"


def _sum(report: dict[str, Any]) -> str:
    rounds = report["decisions"]
    told = [each for each in rounds if each["predicted_seconds"] is not None]
    predicted, measured = (sum(each[name] for each in told) for name in ("predicted_seconds", "measured_seconds"))
    took = sum(each["measured_seconds"] for each in rounds)
    off = f", of {measured:.3f} s that could be told {predicted:.3f} s were predicted" if told else ""
    kept = sum(1 + each["accepted"] for each in rounds)
    switches = len(report.get("switches") or ())
    return f"{len(rounds)} rounds, {kept} tokens in {took:.3f} s{off}; switches: {switches}"
