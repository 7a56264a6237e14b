"""Errors as OpenAI's clients read them, whatever went wrong: our own, the framework's, or a bug."""

import math
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


@dataclass(frozen=True, slots=True)
class Row:
    status: int
    type: str
    code: str | None


INVALID = "invalid_request_error"
BUG = Row(500, "server_error", "internal_error")

TABLE: dict[type[Exception], Row] = {
    InvalidRequest: Row(400, INVALID, None),
    ContextTooLong: Row(400, INVALID, "context_length_exceeded"),
    Unsupported: Row(400, INVALID, "unsupported_parameter"),
    UnknownModel: Row(404, INVALID, "model_not_found"),
    TooLarge: Row(413, INVALID, "request_too_large"),
    Overloaded: Row(429, "rate_limit_error", "rate_limit_exceeded"),
    Cancelled: Row(499, INVALID, "client_closed_request"),  # nobody reads it
    Unavailable: Row(503, "server_error", "service_unavailable"),
    DeadlineExceeded: Row(504, "server_error", "deadline_exceeded"),
}

FRAMEWORK = {404: "not_found", 405: "method_not_allowed", 415: "unsupported_media_type"}


def body(error: Exception) -> dict[str, Any]:
    """The `error` object of an answer or of a frame in a stream."""
    row = TABLE.get(type(error), BUG)
    if row is BUG:
        return _body("internal error", row)
    param = "model" if isinstance(error, UnknownModel) else getattr(error, "field", None)
    return _body(str(error), row, param)


def _body(message: str, row: Row, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": _printable(message), "type": row.type, "param": _printable(param), "code": row.code}}


def _printable(text: str | None) -> str | None:
    """A key of the client's may hold half a surrogate pair, which no answer can."""
    return text and text.encode(errors="backslashreplace").decode()


async def _answer(request: Request, error: Exception) -> Response:
    headers = {}
    if isinstance(error, Overloaded | Unavailable):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    return JSONResponse(body(error), TABLE.get(type(error), BUG).status, headers)


async def _framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    row = Row(error.status_code, INVALID, FRAMEWORK.get(error.status_code))
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(_body(detail, row), error.status_code, error.headers)


def install(app: FastAPI) -> None:
    app.add_exception_handler(TandemError, _answer)
    app.add_exception_handler(HTTPException, _framework)
    app.add_exception_handler(Exception, _answer)  # a bug; the server logs it
