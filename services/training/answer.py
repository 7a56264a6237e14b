"""What a target answered, as ids; and files of such answers.

A line of a file (JSONL, gzipped if its name says so) has `prompt_ids`, the whole prompt as the target saw it, `ids`,
its answer up to and including a stop token, and `temperature`. Other keys are ignored.
"""

import gzip
import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.errors import BadConfig

HELD_OUT = 20  # one prompt of so many is never trained on


@dataclass(frozen=True, slots=True)
class Answer:
    """At least one id of each kind."""

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    temperature: float

    @property
    def held_out(self) -> bool:
        """Decided by the prompt, so that answers to one prompt stay together, in every run and on every machine."""
        digest = hashlib.sha256(array("q", self.prompt_ids).tobytes()).digest()
        return int.from_bytes(digest[:8], "big") % HELD_OUT == 0


def read_answers(path: Path, *, vocab_size: int) -> Iterator[Answer]:
    """Raises BadConfig naming the file, the line and the key."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _answer(line, f"{path}, line {number}", vocab_size)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise BadConfig(f"data: {path} cannot be read: {error}") from error


def _answer(line: str, place: str, vocab_size: int) -> Answer:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadConfig(f"data: {place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadConfig(f"data: {place}: not a JSON object")
    temperature = row.get("temperature", 1.0)
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or temperature < 0:
        raise BadConfig(f"data: {place}: temperature is {temperature!r:.40}, and has to be a number from 0 on")
    prompt_ids, ids = (_ids(row, key, place, vocab_size) for key in ("prompt_ids", "ids"))
    return Answer(prompt_ids, ids, float(temperature))


def _ids(row: dict[str, Any], key: str, place: str, vocab_size: int) -> list[int]:
    ids = row.get(key)
    if not isinstance(ids, list) or not ids or not all(type(id) is int and 0 <= id < vocab_size for id in ids):
        raise BadConfig(f"data: {place}: {key} has to be a list of ids from 0 to {vocab_size - 1}, not empty")
    return ids
