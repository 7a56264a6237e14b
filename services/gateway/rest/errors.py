"""Which error has which status; the API that was called writes it in its own shape."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.errors import (
    Cancelled,
    ContextTooLong,
    DeadlineExceeded,
    InvalidRequest,
    Overloaded,
    TandemError,
    TooLarge,
    Unavailable,
    UnknownModel,
    Unsupported,
)
from services.gateway.rest.request_ids import request_id

STATUS: Mapping[type[Exception], int] = {
    InvalidRequest: 400,
    ContextTooLong: 400,
    Unsupported: 400,
    UnknownModel: 404,
    TooLarge: 413,
    Overloaded: 429,
    Cancelled: 499,  # nobody reads it
    Unavailable: 503,
    DeadlineExceeded: 504,
}
"""Everything else is a bug."""
BUG = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as one API writes it."""

    status: int
    body: dict[str, Any]


Style = Callable[[Exception, str], Refusal]
"""Writes an error, of the request of that id."""


def status(error: Exception) -> int:
    return error.status_code if isinstance(error, HTTPException) else STATUS.get(type(error), BUG)


def message(error: Exception) -> str:
    """What a client may read of it."""
    if status(error) == BUG:
        return "internal error"
    return printable(error.detail if isinstance(error, HTTPException) else str(error))


def printable(text: str) -> str:
    """A key of the client's may hold half a surrogate pair, which no answer can."""
    return text.encode(errors="backslashreplace").decode()


def install(app: FastAPI, style: Style, *, under: Mapping[str, Style]) -> None:
    """Answer errors in `style`, and below a path of `under` in that one's: our own, the framework's, and bugs."""

    async def answer(request: Request, error: Exception) -> Response:
        path, headers = request.url.path, {}
        if isinstance(error, Overloaded | Unavailable):
            headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        if isinstance(error, HTTPException):
            headers |= error.headers or {}
            error = HTTPException(error.status_code, f"{request.method} {path}: {error.detail}")
        own = next((each for prefix, each in under.items() if path == prefix or path.startswith(f"{prefix}/")), style)
        refusal = own(error, request_id(request))
        return JSONResponse(refusal.body, refusal.status, headers)

    for kind in (TandemError, HTTPException, Exception):  # the last is a bug, and the server logs it
        app.add_exception_handler(kind, answer)
