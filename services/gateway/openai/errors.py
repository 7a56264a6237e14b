"""Errors as OpenAI's clients read them."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException

from services.errors import (
    Cancelled,
    ContextTooLong,
    DeadlineExceeded,
    Overloaded,
    TooLarge,
    Unavailable,
    UnknownModel,
    Unsupported,
)
from services.gateway.rest.errors import BUG, Refusal, message, printable, status

CODES: Mapping[type[Exception], str] = {
    ContextTooLong: "context_length_exceeded",
    Unsupported: "unsupported_parameter",
    UnknownModel: "model_not_found",
    TooLarge: "request_too_large",
    Overloaded: "rate_limit_exceeded",
    Cancelled: "client_closed_request",
    Unavailable: "service_unavailable",
    DeadlineExceeded: "deadline_exceeded",
}
FRAMEWORK = {404: "not_found", 405: "method_not_allowed", 408: "request_timeout", 415: "unsupported_media_type"}


def refusal(error: Exception, request_id: str) -> Refusal:
    number = status(error)
    code = FRAMEWORK.get(number) if isinstance(error, HTTPException) else CODES.get(type(error))
    if number == BUG:
        code = "internal_error"
    param = "model" if isinstance(error, UnknownModel) else getattr(error, "field", None)
    told = {"message": message(error), "type": _type(number), "param": param and printable(param), "code": code}
    return Refusal(number, {"error": told})


def _type(number: int) -> str:
    if number == 429:
        return "rate_limit_error"
    return "server_error" if number >= 500 else "invalid_request_error"
