"""config.json, read key by key so that whatever is wrong with it names the key."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from services.errors import BadCheckpoint


class Keys:
    """A JSON object whose values are asked for by type. `place` names it in errors."""

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self._values = values
        self._place = place

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise BadCheckpoint(f"{path} does not exist") from error
        except (OSError, ValueError, RecursionError) as error:
            raise BadCheckpoint(f"{path} cannot be read: {error}") from error
        if not isinstance(values, dict):
            raise BadCheckpoint(f"{path} is not a JSON object")
        return cls(values, path.name)

    def __contains__(self, key: str) -> bool:
        """Whether the key is there and not null: the two mean the same in these files."""
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, key: str) -> str:
        value = self._get(key, None)
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        value = self._get(key, default)
        if type(value) is not int or value < least:
            raise self.wrong(key, f"an integer from {least} on")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self.wrong(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def index(self, key: str) -> int:
        value = self._get(key, None)
        if type(value) is not int or value < 0:
            raise self.wrong(key, "an integer from 0 on")
        return value

    def indices(self, key: str) -> tuple[int, ...]:
        """A list of integers from 0 on; empty when the key is not there."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            raise self.wrong(key, "a list of integers from 0 on")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty when the key is not there."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of texts")
        return tuple(value)

    def one_of(self, key: str, legal: tuple[str, ...], default: str | None = None) -> str:
        value = self._get(key, default)
        if value not in legal:
            raise self.wrong(key, " or ".join(legal))
        return str(value)

    def table(self, key: str) -> "Keys":
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Keys(value, f"{self._place}: {key}")

    def raw(self, key: str) -> Any:  # noqa: ANN401
        """As it stands in the file; None where it is not there."""
        return self._values.get(key)

    def wrong(self, key: str, legal: str) -> BadCheckpoint:
        if key not in self:
            return BadCheckpoint(f"{self._place} lacks {key}, which has to be {legal}")
        return BadCheckpoint(f"{self._place}: {key} is {self._values[key]!r:.80}, and has to be {legal}")

    def _get(self, key: str, default: object) -> object:
        return self._values[key] if key in self else default
