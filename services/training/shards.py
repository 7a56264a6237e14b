"""Answers with the target's states, in files of bounded size that are complete or not there.

A folder has `index.json` (origin, answers asked for in a shard, shards) and files `shard-00000.safetensors` with

    numbers, prompt_lengths, lengths   int32 [A]          of each answer: its number, ids of the prompt, ids of both
    temperatures                       float32 [A]
    ids                                int32 [N]          all ids, one answer after another
    taps                               [N - A, K, H]      states at every id but an answer's last, in the target's dtype

Shape key: A answers, N ids of all, K layers captured (ascending, then the final hidden state if it was), H hidden size.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from services.errors import BadConfig
from services.training.answer import Answer
from services.training.evaluate import Sample
from services.training.files import write_json, write_tensors
from services.training.lanes import Captured, Written

INDEX = "index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The target that wrote, what was captured of it, and what it was asked."""

    weights_hash: str
    tokenizer_hash: str
    captured: Captured
    asked: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def check(self, found: dict[str, Any], folder: Path, *, same_questions: bool) -> None:
        """Raises BadConfig unless shards of origin `found` can stand in for this one's."""
        for name, value in (("weights_hash", self.weights_hash), ("tokenizer_hash", self.tokenizer_hash)):
            if found[name] != value:
                raise BadConfig(
                    f"data: {folder} was made with another target: its {name} is {found[name]}, not {value}"
                )
        layers, hidden = found["captured"]["layers"], found["captured"]["final_hidden"]
        if lacking := [layer for layer in self.captured.layers if layer not in layers]:
            raise BadConfig(f"data: {folder} has the taps of layers {layers}, and not of {lacking}")
        if self.captured.final_hidden and not hidden:
            raise BadConfig(f"data: {folder} lacks the final hidden state")
        if same_questions and found["asked"] != self.asked:
            raise BadConfig(f"data: {folder} was made for {found['asked']}, not {self.asked}; name another folder")


def name_of(shard: int) -> str:
    return f"shard-{shard:05}.safetensors"


class ShardFolder:
    """Written by one process."""

    def __init__(self, folder: Path, origin: Origin, *, per_shard: int) -> None:
        """Whatever is there already has to be of the same origin; then its own `per_shard` stays."""
        self._folder = folder
        self._shards: dict[str, dict[str, int]] = {}
        self._origin = origin.to_json()
        self.per_shard = per_shard
        if (folder / INDEX).exists():
            found = read_index(folder)
            origin.check(found["origin"], folder, same_questions=True)
            self._origin, self._shards, self.per_shard = found["origin"], found["shards"], found["per_shard"]

    @property
    def captured(self) -> Captured:
        """As the folder was begun with, which may be more than is needed now."""
        return _captured(self._origin)

    def __contains__(self, shard: int) -> bool:
        return name_of(shard) in self._shards

    @property
    def tokens(self) -> int:
        """Ids of all answers."""
        return sum(shard["tokens"] for shard in self._shards.values())

    @property
    def bytes(self) -> int:
        return sum(shard["bytes"] for shard in self._shards.values())

    def add(self, shard: int, written: Sequence[Written]) -> None:
        answers = [each.answer for each in sorted(written, key=lambda each: each.task.number)]
        tensors = _columns(answers) | {
            "numbers": torch.tensor(sorted(each.task.number for each in written), dtype=torch.int32)
        }
        taps = [each.taps_PKH for each in sorted(written, key=lambda each: each.task.number)]
        captured = [each for each in taps if each is not None]
        if captured:
            tensors["taps"] = torch.cat(captured)
        path = self._folder / name_of(shard)
        write_tensors(path, tensors, {"origin": json.dumps(self._origin)})
        tokens = sum(len(answer.ids) for answer in answers)
        self._shards[path.name] = {"answers": len(answers), "tokens": tokens, "bytes": path.stat().st_size}
        shards = dict(sorted(self._shards.items()))
        write_json(self._folder / INDEX, {"origin": self._origin, "per_shard": self.per_shard, "shards": shards})


def _columns(answers: Sequence[Answer]) -> dict[str, Tensor]:
    def column(values: Iterator[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int32)

    return {
        "prompt_lengths": column(len(answer.prompt_ids) for answer in answers),
        "lengths": column(len(answer.prompt_ids) + len(answer.ids) for answer in answers),
        "temperatures": torch.tensor([answer.temperature for answer in answers]),
        "ids": column(id for answer in answers for id in (*answer.prompt_ids, *answer.ids)),
    }


@dataclass(frozen=True, slots=True)
class _Place:
    file: Any
    answer: Answer
    row: int  # its first among the file's taps


class Shards(Sequence[Sample]):
    """The answers of a folder. Ids are in memory; taps are read from the mapped files when they are asked for."""

    def __init__(self, places: Sequence[_Place], columns: Sequence[int] | None) -> None:
        self._places = places
        self._columns = columns

    @classmethod
    def open(cls, folder: Path, origin: Origin) -> Self:
        """Raises BadConfig when the folder's shards are of another target, or lack what is needed."""
        index = read_index(folder)
        origin.check(index["origin"], folder, same_questions=False)
        places = [place for name in index["shards"] for place in _places(folder / name, index["origin"])]
        if not places:
            raise BadConfig(f"data: {folder} has no answers")
        stored = _captured(index["origin"])
        columns = [stored.layers.index(layer) for layer in origin.captured.layers]
        columns += [len(stored.layers)] * origin.captured.final_hidden
        return cls(places, columns or None)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        place = self._places[index]
        if self._columns is None:
            return Sample(place.answer)
        rows = len(place.answer.prompt_ids) + len(place.answer.ids) - 1
        taps_PKH: Tensor = place.file.get_slice("taps")[place.row : place.row + rows]
        return Sample(place.answer, taps_PKH[:, self._columns])

    @property
    def answers(self) -> list[Answer]:
        return [place.answer for place in self._places]

    def part(self, *, held_out: bool) -> "Shards":
        return Shards([place for place in self._places if place.answer.held_out == held_out], self._columns)


def _places(path: Path, origin: dict[str, Any]) -> Iterator[_Place]:
    try:
        file: Any = safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise BadConfig(f"data: {path} is damaged: {error}") from error
    if json.loads((file.metadata() or {}).get("origin", "null")) != origin:
        raise BadConfig(f"data: {path} is of another origin than its {INDEX} says")
    ids = file.get_tensor("ids").tolist()
    columns = [file.get_tensor(name).tolist() for name in ("prompt_lengths", "lengths", "temperatures")]
    begin = 0
    for count, (prompt, length, temperature) in enumerate(zip(*columns, strict=True)):
        text = ids[begin : begin + length]
        yield _Place(file, Answer(text[:prompt], text[prompt:], temperature), begin - count)
        begin += length


def read_index(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / INDEX).read_bytes())
        return {"origin": found["origin"], "per_shard": int(found["per_shard"]), "shards": dict(found["shards"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadConfig(f"data: {folder / INDEX} cannot be read: {error!r}") from error


def _captured(origin: dict[str, Any]) -> Captured:
    return Captured(tuple(origin["captured"]["layers"]), bool(origin["captured"]["final_hidden"]))
