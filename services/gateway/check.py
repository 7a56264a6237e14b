"""A request held against what the target serves, with one table of bounds for every face.

Every refusal names the field as the client wrote it, and the legal values."""

from collections.abc import Mapping, Sequence

from tandem.v1.target_pb2 import TargetServiceDescribeResponse

from services.errors import InvalidRequest, UnknownModel
from services.gateway.request import Chat, GenerationRequest, Text, TokenIds, shown
from services.wire.bounds import BIAS, SAMPLING, Bound
from services.wire.codec import MODES

MAX_ID_CHARS = 200


def bounds(served: TargetServiceDescribeResponse, *, max_choices: int) -> Mapping[str, Bound]:
    """Fields that hold one number. How long prompt and output may be together is known when the prompt is encoded."""

    def whole(low: int, high: int | None) -> Bound:
        return Bound(kind="an integer", low=low, high=high)

    return {
        "n": whole(1, max_choices),
        "max_tokens": whole(1, None),
        "min_tokens": whole(0, served.context_length),
        "logprobs": whole(0, served.limits.max_logprobs),
        **SAMPLING,
        "top_k": whole(0, served.vocab_size),
        "seed": whole(-(2**63), 2**63 - 1),
        "max_draft_tokens": whole(1, served.limits.max_draft_tokens),
    }


def check(request: GenerationRequest, served: TargetServiceDescribeResponse, *, max_choices: int) -> None:
    """Refuse what this target does not accept. Raises InvalidRequest or UnknownModel."""
    if request.model not in (None, served.model):
        raise UnknownModel(f"{request.name('model')} {shown(request.model)} is not served; served is {served.model!r}")
    if len(request.id) > MAX_ID_CHARS:
        raise _refused(request, "request_id", f"must have at most {MAX_ID_CHARS} characters, not {len(request.id)}")
    for name, bound in bounds(served, max_choices=max_choices).items():
        value = getattr(request, name)
        if value is not None and not bound.admits(value):
            raise _refused(request, name, f"must be {bound}, not {shown(value)}")
    if request.min_tokens and request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise _refused(request, "min_tokens", f"must be at most {request.name('max_tokens')} ({request.max_tokens})")
    if request.mode not in MODES.legal:
        raise _refused(request, "mode", f"must be one of {', '.join(MODES.legal)}, not {shown(request.mode)}")
    _check_bands(request)
    _check_stop(request, served)
    _check_bias(request, served)
    for name in ("banned_ids", "stop_ids"):
        ids = getattr(request, name)
        if len(ids) > served.vocab_size:
            raise _refused(request, name, f"must have at most {served.vocab_size} ids, not {len(ids)}")
        _check_ids(request, name, ids, served)
    if len(set(request.banned_ids)) >= served.vocab_size:
        raise _refused(request, "banned_ids", "must leave at least one id")
    if isinstance(request.input, Chat) and not request.input.messages:
        raise _refused(request, "input", "must not be empty")
    if request.input in (Text(""), TokenIds(())):
        raise _refused(request, "input", "must give a prompt of at least one token")
    if isinstance(request.input, TokenIds):
        # More than the context holds are refused for their number.
        _check_ids(request, "input", request.input.ids[: served.context_length], served)


def _check_bands(request: GenerationRequest) -> None:
    """What a message can hold; how bands lie to each other is the target's to judge."""
    for index, band in enumerate(request.bands):
        for value in (band.start, 0 if band.end is None else band.end):
            if not 0 <= value < 2**32:
                raise _refused(request, "bands", f"must be lengths from 0 to {2**32 - 1}, not {shown(value)}", index)
        for mode in band.modes:
            if mode not in MODES.legal:
                legal = ", ".join(MODES.legal)
                raise _refused(request, "bands", f"must name modes among {legal}, not {shown(mode)}", index)


def _check_stop(request: GenerationRequest, served: TargetServiceDescribeResponse) -> None:
    most, longest = served.limits.max_stop_strings, served.limits.max_stop_string_chars
    if len(request.stop) > most:
        raise _refused(request, "stop", f"must have at most {most} strings, not {len(request.stop)}")
    for index, string in enumerate(request.stop):
        if not 1 <= len(string) <= longest:
            raise _refused(request, "stop", f"must have 1 to {longest} characters, not {len(string)}", index)


def _check_bias(request: GenerationRequest, served: TargetServiceDescribeResponse) -> None:
    most = served.limits.max_logit_bias
    if len(request.logit_bias) > most:
        raise _refused(request, "logit_bias", f"must have at most {most} ids, not {len(request.logit_bias)}")
    for id, bias in request.logit_bias.items():
        if not 0 <= id < served.vocab_size:
            raise _refused(request, "logit_bias", f"must have ids from 0 to {served.vocab_size - 1}, not {shown(id)}")
        if not BIAS.admits(bias):
            raise _refused(request, "logit_bias", f"must have for id {id} {BIAS}, not {shown(bias)}")


def _check_ids(
    request: GenerationRequest, name: str, ids: Sequence[int], served: TargetServiceDescribeResponse
) -> None:
    for index, id in enumerate(ids):
        if not 0 <= id < served.vocab_size:
            raise _refused(request, name, f"must be an id from 0 to {served.vocab_size - 1}, not {shown(id)}", index)


def _refused(request: GenerationRequest, name: str, why: str, index: int | None = None) -> InvalidRequest:
    """An element of a list that the client wrote as a bare value goes by the name of the field."""
    path = request.name(name)
    if index is not None:
        path = request.names.get(f"{name}[]", f"{path}[{index}]")
    return InvalidRequest(f"{path} {why}", field=path)
