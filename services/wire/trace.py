"""A caller's trace, passed on as it came: W3C Trace Context, level 2 (https://www.w3.org/TR/trace-context-2/).

We make no spans. What is malformed is left out, as if the caller had not sent it, and never refused.
"""

import re
from collections.abc import Iterable

Trace = tuple[tuple[str, str], ...]
"""`traceparent` and perhaps `tracestate`, as metadata of a gRPC call; empty without a trace."""

PARENT, STATE = "traceparent", "tracestate"
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?")
_KEY = r"([a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_MEMBER = re.compile(rf"{_KEY}=[ -+\--<>-~]{{0,255}}[!-+\--<>-~]")
MAX_MEMBERS, MAX_PARENT_CHARS = 32, 256
MAX_STATE_CHARS = 2048
"""The standard asks for 512; metadata of a call has room for some thousands, and a trace must not fail a request."""


def trace_of(headers: Iterable[tuple[str, str | bytes]]) -> Trace:
    """The trace among the headers of an HTTP request, or the metadata of a gRPC call; names are in lower case."""
    found: dict[str, list[str]] = {PARENT: [], STATE: []}
    for name, value in headers:
        if name in found and isinstance(value, str):
            found[name].append(value.strip(" \t"))
    if len(found[PARENT]) != 1 or not _is_parent(found[PARENT][0]):
        return ()
    parent, state = (PARENT, found[PARENT][0]), _state(found[STATE])
    return (parent, (STATE, state)) if state else (parent,)


def _is_parent(value: str) -> bool:
    """Version 00 ends after the flags; a later one may say more."""
    match = _PARENT.fullmatch(value) if len(value) <= MAX_PARENT_CHARS else None
    return match is not None and not (value.startswith("00") and match[1])


def _state(values: list[str]) -> str:
    """Several headers are one list. One that is malformed or too long is dropped whole."""
    members = [member for value in values for each in value.split(",") if (member := each.strip(" \t"))]
    if len(members) > MAX_MEMBERS or not all(map(_MEMBER.fullmatch, members)):
        return ""
    state = ",".join(members)
    return state if len(state) <= MAX_STATE_CHARS else ""
