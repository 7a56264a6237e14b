"""What a client asked for, whichever face it came through, and the one table of numeric bounds.

A face fills in plain values of the right types and says in `names` how its client spells the fields; `check` compares
them with what the target serves. Every refusal names the field as the client wrote it, and the legal values.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tandem.v1.target_pb2 import TargetServiceDescribeResponse

from services.errors import InvalidRequest, UnknownModel
from services.wire.bounds import BIAS, SAMPLING, Bound
from services.wire.codec import MODES

SEEDS = 2**53
"""Drawn seeds stay below what every JSON reader holds exactly."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages of `role` and `content`, for the model's chat template."""

    messages: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Encoded as it is; special tokens in it stay text."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenIds:
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """None: the client said nothing, and the model's generation default applies."""

    id: str
    input: Chat | Text | TokenIds
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int | None = None
    logprobs: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    mode: str = "auto"
    max_draft_tokens: int | None = None
    strict: bool = False
    stats: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, field: str) -> str:
        """How the client spells `field`."""
        return self.names.get(field, field)


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
    for name, bound in bounds(served, max_choices=max_choices).items():
        value = getattr(request, name)
        if value is not None and not bound.admits(value):
            raise _refused(request, name, f"must be {bound}, not {shown(value)}")
    if request.min_tokens and request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise _refused(request, "min_tokens", f"must be at most {request.name('max_tokens')} ({request.max_tokens})")
    if request.mode not in MODES.legal:
        raise _refused(request, "mode", f"must be one of {', '.join(MODES.legal)}, not {shown(request.mode)}")
    _check_stop(request, served)
    _check_bias(request, served)
    for name in ("banned_ids", "stop_ids"):
        _check_ids(request, name, getattr(request, name), served)
    if len(set(request.banned_ids)) >= served.vocab_size:
        raise _refused(request, "banned_ids", "must leave at least one id")
    if isinstance(request.input, Chat) and not request.input.messages:
        raise _refused(request, "input", "must not be empty")
    if isinstance(request.input, TokenIds):
        # More than the context holds are refused for their number.
        _check_ids(request, "input", request.input.ids[: served.context_length], served)


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
    request: GenerationRequest, name: str, ids: Iterable[int], served: TargetServiceDescribeResponse
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


def shown(value: object) -> str:
    """A client's value in a message: as JSON would have it for what is not a string, never at length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def drawn_seed() -> int:
    return secrets.randbelow(SEEDS)
