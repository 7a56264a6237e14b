"""Parts of pages in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def conditions(document: Mapping[str, Any]) -> str:
    """On what it was measured, and how."""
    known, settings = document["environment"], document["settings"]
    looping = f" Answers that loop: {settings['answers that loop']}." if "answers that loop" in settings else ""
    return (
        f"{settings['model']}, {known['threads']} threads of {known['cpu']}, torch {known['torch']}, transformers "
        f"{known['transformers']}, commit {known['commit']}; answers of at most {settings['tokens at most']} "
        f"tokens.{looping}\n"
    )


def interval(median: float, low: float, high: float) -> str:
    return f"{median:.2f} [{low:.2f}, {high:.2f}]"


def grouped(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)) + "\n"
