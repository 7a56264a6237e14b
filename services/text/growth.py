"""How much a template may make: a few characters of template can ask for more than any machine has.

What a result cannot hide is checked before the work, the rest after it. Lists within lists are counted as often as
they would be written, so that none exists which could not be written, compared or sorted."""

import functools
import json
import re
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from jinja2.exceptions import SecurityError

CHARACTERS = 32_000_000
ITEMS = 250_000
BITS = 4096  # of a number
SLACK = 100  # how far an upper estimate of a result may be above what the result may be
PRODUCTS = {"join", "replace", "wordwrap", "indent"}  # functions that put one argument many times into another
FORMATS = {"format", "format_map"}
WIDE = re.compile(r"\d{6}")  # a width written inside a format

T = TypeVar("T")


def concat(pieces: Iterable[str]) -> str:
    result = []
    room = CHARACTERS
    for piece in pieces:
        room -= len(piece)
        _check(-room, 0)
        result.append(piece)
    return "".join(result)


def sized(value: T) -> T:
    """The value, unless it is larger than anything may be."""
    if isinstance(value, str):
        _check(len(value), CHARACTERS)
    elif isinstance(value, list | tuple | dict):
        _count(value)
    return value


def check_operator(operator: str, left: object, right: object) -> None:
    """Before the work: `*`, `**` and `%` of texts, lists and numbers; sums can be looked at afterwards."""
    sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
    numbers = [value for value in (left, right) if isinstance(value, int)]
    if operator == "%" and isinstance(left, str):
        check_call("format", left, *(right if isinstance(right, tuple) else [right]))
    elif sizes and numbers and operator == "*":
        _check(sizes[0] * numbers[0], CHARACTERS)
    elif len(numbers) == 2 and operator in ("*", "**"):
        first, second = (abs(number).bit_length() for number in numbers)
        _check(first * numbers[1] if operator == "**" else first + second, BITS)


def check_call(name: str, *values: object) -> None:
    """Before the work: a method with its owner, or a filter with what it filters."""
    sizes = sorted((len(value) for value in values if isinstance(value, str | list | tuple)), reverse=True)
    factors = [value for value in values if isinstance(value, int)]
    if name in PRODUCTS:
        factors += sizes[1:]
    if sizes and factors:
        _check(sizes[0] * max(factors), SLACK * CHARACTERS)
    if name in FORMATS and values and isinstance(values[0], str) and WIDE.search(values[0]):
        _refuse()


def measured(name: str, function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)  # keeps the marks that tell Jinja what else to pass
    def checked(*args: object, **kwargs: object) -> object:
        check_call(name, *args, *kwargs.values())
        return sized(function(*args, **kwargs))

    return checked


def tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """What transformers puts in the place of Jinja's own, which would escape for HTML."""
    items, depth = _count(value)
    _check(items * depth * (indent or 0), CHARACTERS)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _count(value: object) -> tuple[int, int]:
    """How many values the value holds, itself included, and how deep they lie."""
    level = [value]
    items = characters = depth = 0
    while level:
        depth += 1
        items += len(level)
        characters += sum(len(item) for item in level if isinstance(item, str))
        _check(items, ITEMS)
        _check(characters, CHARACTERS)
        lists = [part for item in level if isinstance(item, list | tuple) for part in item]
        level = [part for item in level if isinstance(item, dict) for pair in item.items() for part in pair] + lists
    return items, depth


def _check(size: int, limit: int) -> None:
    if size > limit:
        _refuse()


def _refuse() -> NoReturn:
    raise SecurityError("it makes more text than it may")
