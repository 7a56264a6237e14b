"""The one table between our errors and gRPC statuses, read in both directions.

A servicer raises errors of `services.errors`; a client sees the same class, with its field or retry hint. Every status
of ours carries an `ErrorInfo` of domain `tandem`, whose reason names the class; one without it was made by gRPC itself
(no connection, a message over the limit, a deadline), and its code alone decides.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from grpc_status import rpc_status

from services.errors import (
    Cancelled,
    ContextTooLong,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    Overloaded,
    TandemError,
    TokenizerMismatch,
    TooLarge,
    Unavailable,
    UnknownModel,
    Unsupported,
)
from services.wire.trace import PARENT, trace_of

log = logging.getLogger(__name__)

DOMAIN = "tandem"
MAX_TEXT = 2000  # characters of a message or a field; they travel in metadata, which is bounded


@dataclass(frozen=True, slots=True)
class Row:
    code: StatusCode
    reason: str
    text: str
    """What a caller reads when gRPC made the status: its own text names addresses and internals."""


TABLE: dict[type[TandemError], Row] = {
    InvalidRequest: Row(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "the request is invalid"),
    ContextTooLong: Row(StatusCode.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED", "the prompt is too long"),
    UnknownModel: Row(StatusCode.NOT_FOUND, "UNKNOWN_MODEL", "not found"),
    Unsupported: Row(StatusCode.FAILED_PRECONDITION, "SPECULATION_UNAVAILABLE", "not supported here"),
    TokenizerMismatch: Row(StatusCode.FAILED_PRECONDITION, "TOKENIZER_MISMATCH", "another tokenizer"),
    TooLarge: Row(StatusCode.RESOURCE_EXHAUSTED, "TOO_LARGE", "the message is too large"),
    Overloaded: Row(StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", "too many requests"),
    Unavailable: Row(StatusCode.UNAVAILABLE, "UNAVAILABLE", "the service is not reachable"),
    DeadlineExceeded: Row(StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the deadline passed"),
    Cancelled: Row(StatusCode.CANCELLED, "CANCELLED", "the call was cancelled"),
    Internal: Row(StatusCode.INTERNAL, "INTERNAL", "internal error"),
}

_BY_REASON = {row.reason: error for error, row in TABLE.items()}

# gRPC's own RESOURCE_EXHAUSTED is a message over the limit; a code it shares among classes means the general one.
_BY_CODE = {row.code: error for error, row in reversed(TABLE.items())} | {StatusCode.RESOURCE_EXHAUSTED: TooLarge}


def status_of(error: Exception) -> Status:
    """The status that a caller gets for `error`; anything outside the table is a bug, and its text stays here."""
    row = TABLE.get(type(error)) if isinstance(error, TandemError) else None
    if row is None or type(error) is Internal:
        row = TABLE[Internal]
        text = row.text
    else:
        text = str(error)[:MAX_TEXT]
    details = [ErrorInfo(reason=row.reason, domain=DOMAIN), *_details(error, text)]
    return Status(code=row.code.value[0], message=text, details=[_packed(detail) for detail in details])


def _details(error: Exception, text: str) -> Iterator[Message]:
    match error:
        case InvalidRequest(field=str(field)):
            yield BadRequest(field_violations=[BadRequest.FieldViolation(field=field[:MAX_TEXT], description=text)])
        case Unsupported(field=str(field)):
            yield PreconditionFailure(
                violations=[PreconditionFailure.Violation(subject=field[:MAX_TEXT], description=text)]
            )
        case UnknownModel():
            yield ResourceInfo(resource_type="model", description=text)
        case Overloaded(retry_after_s=seconds) | Unavailable(retry_after_s=seconds):
            retry = RetryInfo()
            retry.retry_delay.FromNanoseconds(round(seconds * 1e9))
            yield retry


def _packed(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def error_of(error: grpc.RpcError) -> TandemError:
    """The error that the other side raised, or the nearest class for a status that gRPC made."""
    code = error.code() if isinstance(error, grpc.aio.AioRpcError) else StatusCode.UNKNOWN
    try:
        status = rpc_status.from_call(error) or Status()
    except ValueError:  # details that contradict the status; the status wins
        status = Status()
    info, field, retry_after_s = ErrorInfo(), None, None
    for packed in status.details:
        if packed.Is(ErrorInfo.DESCRIPTOR):
            packed.Unpack(info)
        elif packed.Is(BadRequest.DESCRIPTOR):
            field = next((violation.field for violation in _as(packed, BadRequest()).field_violations), None)
        elif packed.Is(PreconditionFailure.DESCRIPTOR):
            field = next((violation.subject for violation in _as(packed, PreconditionFailure()).violations), None)
        elif packed.Is(RetryInfo.DESCRIPTOR):
            retry_after_s = _as(packed, RetryInfo()).retry_delay.ToNanoseconds() / 1e9
    ours = _BY_REASON.get(info.reason) if info.domain == DOMAIN else None
    made = ours or _BY_CODE.get(code, Internal)
    text = status.message if ours else TABLE[made].text
    if issubclass(made, InvalidRequest | Unsupported):
        return made(text, field=field)
    if issubclass(made, Overloaded | Unavailable) and retry_after_s is not None:
        return made(text, retry_after_s=retry_after_s)
    return made(text)


def _as(packed: AnyMessage, message: Any) -> Any:  # noqa: ANN401  (the detail messages have no stubs)
    packed.Unpack(message)
    return message


@asynccontextmanager
async def reported(context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
    """Ends the call with the status of whatever is raised inside. `serving` puts it around every method."""
    try:
        yield
    except grpc.aio.AbortError:  # reported already
        raise
    except Exception as error:  # never BaseException: a cancelled call must stay cancelled
        if type(error) not in TABLE or isinstance(error, Internal):
            trace = dict(trace_of(context.invocation_metadata() or ()))
            log.exception("a call failed%s", f" (traceparent {trace[PARENT]})" if trace else "")
        await context.abort_with_status(rpc_status.to_status(status_of(error)))


@contextmanager
def raising() -> Iterator[None]:
    """Around a call of a client, or the loop over its stream: what comes out is an error of ours."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise error_of(error) from error
