"""Errors as Anthropic's clients read them."""

from services.errors import Unavailable
from services.gateway.rest.errors import Refusal, message, status

OVERLOADED = 529
TYPES = {
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


def refusal(error: Exception, request_id: str) -> Refusal:
    number = OVERLOADED if isinstance(error, Unavailable) else status(error)
    told = {"type": _type(number), "message": message(error)}
    return Refusal(number, {"type": "error", "error": told, "request_id": request_id})


def _type(number: int) -> str:
    return TYPES.get(number) or ("api_error" if number >= 500 else "invalid_request_error")
