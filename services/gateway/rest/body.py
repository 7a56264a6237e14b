"""The body of a request: read within its limits, then parsed as JSON is defined, not as Python reads it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from services.errors import Cancelled, InvalidRequest, TooLarge


@dataclass(frozen=True, slots=True)
class Limits:
    """`upload_s`: seconds within which all of a body has to be here."""

    max_bytes: int
    upload_s: float


async def read(request: Request, limits: Limits) -> bytes:
    """The whole body. TooLarge as soon as it is known, by the declared length or by what has arrived. A client that is
    too slow is answered 408 and its connection closed, since the rest of the body would be taken for a request."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, f"Content-Type must be application/json, not {media_type or 'absent'}")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limits.max_bytes:
        raise _too_large(limits.max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.upload_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.max_bytes:
                    raise _too_large(limits.max_bytes)
    except ClientDisconnect:
        raise Cancelled("the client left") from None
    except TimeoutError:
        late = f"the body did not arrive within {limits.upload_s:g} seconds"
        raise HTTPException(408, late, {"Connection": "close"}) from None
    return bytes(body)


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises InvalidRequest for all else: NaN, doubled keys, other Unicode than UTF-8."""
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float("nan")

    try:
        value = json.loads(body.decode(), object_pairs_hook=_distinct, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object")
    if constants:
        field = _nan(value, "")
        raise InvalidRequest(f"{field} must be a number that JSON has, not {constants[0]}", field=field)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidRequest(f"the key {twice!r} is given more than once", field=twice)
    return value


def _nan(value: object, path: str) -> str | None:
    """Where the first NaN stands."""
    match value:
        case dict():
            inner = ((each, f"{path}.{key}".lstrip(".")) for key, each in value.items())
        case list():
            inner = ((each, f"{path}[{index}]") for index, each in enumerate(value))
        case _:
            return path if value != value else None
    return next(filter(None, (_nan(each, where) for each, where in inner)), None)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")
