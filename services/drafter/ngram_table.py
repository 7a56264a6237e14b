"""What usually follows the last few tokens of a text: an n-gram table made from what the target itself wrote.

A folder with `config.json` (`"architectures": ["NgramTable"]`, `order`, `vocab_size`, `tokenizer_hash`) and
`model.safetensors`. For each length n of a context from 1 to `order` - 1 the file has three tensors of equal length:

    context.n  int64, ascending   the context's ids as digits of one number in base `vocab_size`, the latest last
    next.n     int32              the id that followed most often
    chance.n   uint8              how likely it is to follow, in 255ths

A context that is not there, or whose entry would say what the shorter context says, is left to the shorter one
(back-off as in Katz, 1987, for the likeliest token only). Reading needs neither torch nor numpy.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self

from safetensors import SafetensorError, deserialize

from services.engine.weights.config import Keys
from services.errors import BadCheckpoint

ARCHITECTURE = "NgramTable"
CONFIG, FILE = "config.json", "model.safetensors"
CHANCES = 255
LONGEST = 16
# Types as safetensors and as Python name them.
COLUMNS: dict[str, tuple[str, Literal["q", "i", "B"]]] = {
    "context": ("I64", "q"),
    "next": ("I32", "i"),
    "chance": ("U8", "B"),
}


def most_order(vocab_size: int) -> int:
    """The longest n-grams whose contexts fit an int64."""
    return next((order for order in range(2, LONGEST) if vocab_size**order > 2**63), LONGEST)


@dataclass(frozen=True, slots=True)
class Length:
    """The contexts of one length; entry i of each column belongs together."""

    contexts: Sequence[int]
    nexts: Sequence[int]
    chances: Sequence[int]

    def find(self, context: int) -> tuple[int, float] | None:
        """The token that follows, and its chance."""
        place = bisect_left(self.contexts, context)
        if place == len(self.contexts) or self.contexts[place] != context:
            return None
        return self.nexts[place], self.chances[place] / CHANCES


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramTable:
    """`lengths[n - 1]` has the contexts of n tokens. `tokenizer_hash` names the tokenizer whose ids these are."""

    lengths: Sequence[Length]
    vocab_size: int
    tokenizer_hash: str

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises BadCheckpoint naming the file and what is wrong with it."""
        keys = Keys.read(folder / CONFIG)
        if ARCHITECTURE not in keys.texts("architectures"):
            raise keys.wrong("architectures", f'["{ARCHITECTURE}"]')
        vocab_size, order = keys.integer("vocab_size"), keys.integer("order")
        if not 2 <= order <= most_order(vocab_size):
            raise keys.wrong("order", f"from 2 to {most_order(vocab_size)} with {vocab_size} ids")
        return cls(
            lengths=_lengths(folder / FILE, order, vocab_size),
            vocab_size=vocab_size,
            tokenizer_hash=keys.text("tokenizer_hash"),
        )

    def following(self, ids: Sequence[int], count: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The likeliest `count` tokens after `ids` with their chances, each after those before it; fewer where none is
        known."""
        recent = list(ids[-len(self.lengths) :])
        found: list[tuple[int, float]] = []
        while len(found) < count and (best := self._next(recent)):
            found.append(best)
            recent.append(best[0])
        return tuple(id for id, _ in found), tuple(chance for _, chance in found)

    def _next(self, recent: Sequence[int]) -> tuple[int, float] | None:
        """By the longest context that is known."""
        contexts, context, unit = [], 0, 1
        for id in recent[: -len(self.lengths) - 1 : -1]:
            context += id * unit
            unit *= self.vocab_size
            contexts.append(context)
        for length, context in zip(reversed(self.lengths[: len(contexts)]), reversed(contexts), strict=True):
            if best := length.find(context):
                return best
        return None


def _lengths(path: Path, order: int, vocab_size: int) -> list[Length]:
    parse: Any = deserialize
    try:
        found = dict(parse(path.read_bytes()))
    except FileNotFoundError as error:
        raise BadCheckpoint(f"{path} does not exist") from error
    except (OSError, SafetensorError) as error:
        raise BadCheckpoint(f"{path} is damaged: {error}") from error
    wanted = [f"{column}.{n}" for n in range(1, order) for column in COLUMNS]
    if odd := sorted(found.keys() ^ set(wanted)):
        raise BadCheckpoint(f"{path}: {odd[0]} is {'missing' if odd[0] in wanted else 'no part of a table'}")
    return [_length(path, n, found, vocab_size) for n in range(1, order)]


def _length(path: Path, n: int, found: dict[str, dict[str, Any]], vocab_size: int) -> Length:
    columns: list[Sequence[int]] = []
    for column, (dtype, code) in COLUMNS.items():
        tensor, name = found[f"{column}.{n}"], f"{column}.{n}"
        if tensor["dtype"] != dtype or len(tensor["shape"]) != 1:
            raise BadCheckpoint(
                f"{path}: {name} is {tensor['dtype']} of shape {tensor['shape']}, not {dtype} [entries]"
            )
        columns.append(memoryview(tensor["data"]).cast(code))
    contexts, nexts, chances = columns
    if not len(contexts) == len(nexts) == len(chances):
        raise BadCheckpoint(f"{path}: context.{n}, next.{n} and chance.{n} are not equally long")
    if not _within(contexts, vocab_size**n) or any(a >= b for a, b in pairwise(contexts)):
        raise BadCheckpoint(f"{path}: context.{n} is not ascending within {vocab_size} to the power {n}")
    if not _within(nexts, vocab_size):
        raise BadCheckpoint(f"{path}: next.{n} has an id that is not in a vocabulary of {vocab_size}")
    return Length(contexts, nexts, chances)


def _within(values: Iterable[int], end: int) -> bool:
    return all(0 <= value < end for value in values)
