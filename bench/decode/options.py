"""What this measurement takes on the command line besides what all take."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from bench.command import positive
from bench.decode.workloads import LARGEST, MOST, WORKLOADS
from services.wire.codec import MODES

DRAFTERS = ("mtp", "dflash", "dflash2", "ngram_table", "draft_vocab")
"""Settings of the drafter that name files."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`modes` None: all that are loaded. `prompts`: of a workload, at most. `answers` and `turns`: of a row, as far as
    prompts go. `drafters`: settings of the drafter, in place of what ships. `ggufs`: for llama.cpp, beside Tandem."""

    workloads: Sequence[str] = tuple(WORKLOADS)
    modes: Sequence[str] | None = None
    temperatures: Sequence[float] = (0.0, 0.7)
    batches: Sequence[int] = (1, 8)
    tokens: int = 40
    prompts: int = MOST
    answers: int = 4
    turns: int = 2
    drafters: Mapping[str, str]
    ggufs: Sequence[Path] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    usual = Wanted(drafters={})
    add = parser.add_argument
    add("--workloads", type=_some(_of(WORKLOADS)), help=f"with commas; default: {','.join(WORKLOADS)}")
    add("--modes", type=_some(_of(MODES.legal)), help="with commas; default: all that are loaded. `none` always runs")
    add("--temperatures", type=_some(_temperature), help="with commas; default: 0,0.7")
    add("--batches", type=_some(positive), help="streams at once, with commas; default: 1,8")
    add("--tokens", type=positive, help=f"of an answer at most; default: {usual.tokens}")
    add("--prompts", type=_prompts, help=f"of a workload, 1 to {LARGEST}; default and all of our own: {usual.prompts}")
    add("--answers", type=positive, help=f"of a row, or twice the batch if that is more; default: {usual.answers}")
    for name in DRAFTERS:
        add(f"--{name.replace('_', '-')}", type=Path, help="in place of what ships: see docs/configuration.md, drafter")
    add("--peers", action="store_true", help="in place of that, Tandem beside others: greedy, one stream")
    add("--gguf", type=Path, action="append", help="the model for llama.cpp, one of --peers; may come several times")
    add("--write", type=Path, metavar="FOLDER", help="write decode.md and its plots there, or decode-peers.md")


def wanted(given: argparse.Namespace) -> Wanted:
    files = {name: str(path.absolute()) for name in DRAFTERS if (path := getattr(given, name)) is not None}
    usual = Wanted(drafters=files, ggufs=given.gguf or ())
    if given.quick:
        usual = replace(usual, tokens=8, prompts=2, answers=1, turns=1)
    names = ("workloads", "modes", "temperatures", "batches", "tokens", "prompts", "answers")
    return replace(usual, **{name: value for name in names if (value := getattr(given, name)) is not None})


def _some(one: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """A list with commas, nothing twice."""
    return lambda text: tuple(dict.fromkeys(one(part.strip()) for part in text.split(",")))


def _of(legal: Sequence[str] | Mapping[str, object]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in legal:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(legal)}")
        return text

    return read


def _temperature(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 2:
        raise argparse.ArgumentTypeError(f"{number} is not from 0 to 2")
    return number


def _prompts(text: str) -> int:
    number = positive(text)
    if number > LARGEST:
        raise argparse.ArgumentTypeError(f"{number} is not from 1 to {LARGEST}")
    return number
