"""The legal values of a setting, in words: the same in `--help` and in refusals."""

from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Legal:
    """Words for a type that cannot be described by its bounds; stands in its `Annotated`."""

    words: str


def legal_values(field: FieldInfo) -> str:
    kind, metadata = _unwrap(field.annotation, list(field.metadata))
    for mark in metadata:
        if isinstance(mark, Legal):
            return mark.words
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if kind in (int, float):
        return f"{'an integer' if kind is int else 'a number'} {_range(metadata)}"
    return "a folder" if kind is Path else "text that is not empty"


def _unwrap(kind: object, metadata: list[object]) -> tuple[object, list[object]]:
    """Take `| None` and `Annotated` off a type, and keep what was annotated."""
    if get_origin(kind) in (Union, UnionType):
        return _unwrap(next(part for part in get_args(kind) if part is not NoneType), metadata)
    if get_origin(kind) is Annotated:
        inner, *marks = get_args(kind)
        return _unwrap(inner, [*metadata, *marks])
    return kind, metadata


def _range(metadata: list[object]) -> str:
    low = next(
        f"from {mark.ge}" if isinstance(mark, Ge) else f"above {mark.gt}"
        for mark in metadata
        if isinstance(mark, Ge | Gt)
    )
    high = next(mark.le for mark in metadata if isinstance(mark, Le))
    return f"{low} to {high}"
