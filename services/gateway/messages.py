"""Requests as messages of `tandem.v1`: read from the public face's, written as the target's. Translation only."""

import uuid
from collections.abc import Sequence

from tandem.v1 import generation_pb2, target_pb2, types_pb2

from services.errors import InvalidRequest, Unsupported
from services.gateway.request import Band, Chat, GenerationRequest, Text, TokenIds
from services.wire.codec import MODES

SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "min_tokens",
    "seed",
)
"""Fields of one number, by the same name here and in `Sampling`."""

NAMES = {
    **{name: f"sampling.{name}" for name in (*SAMPLING, "logit_bias", "banned_ids")},
    "stop": "stopping.strings",
    "stop_ids": "stopping.ids",
    "ignore_eos": "stopping.ignore_eos",
    **{
        name: f"speculation.{name}"
        for name in ("mode", "max_draft_tokens", "strict", "stats", "audit", "explain", "bands")
    },
}
"""Our field, and its path in both protos where that is another."""

_OURS = {path: name for name, path in NAMES.items()} | {"prompt_ids": "input"}

ROLES = ("system", "user", "assistant")


def as_written(error: InvalidRequest | Unsupported, request: GenerationRequest) -> InvalidRequest | Unsupported:
    """The target's refusal in the words of the client, which may spell fields otherwise."""
    if error.field is None:
        return error
    path = error.field.partition("[")[0]
    field, text = request.name(_OURS.get(path, path)), str(error)
    return type(error)(text if field in text else f"{field} {text}", field=field)


def request_of(message: generation_pb2.GenerateRequest) -> GenerationRequest:
    """What a gRPC client asked for; values are checked later."""
    sampling, stopping, speculation = message.sampling, message.stopping, message.speculation
    return GenerationRequest(
        id=message.request_id or uuid.uuid4().hex,
        input=_input_of(message),
        model=message.model or None,
        n=message.n if message.HasField("n") else 1,
        max_tokens=message.max_tokens if message.HasField("max_tokens") else None,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        **{name: getattr(sampling, name) for name in SAMPLING if sampling.HasField(name)},  # type: ignore[arg-type]
        logit_bias={entry.id: entry.bias for entry in sampling.logit_bias},
        banned_ids=tuple(sampling.banned_ids),
        stop=tuple(stopping.strings),
        stop_ids=tuple(stopping.ids),
        ignore_eos=stopping.ignore_eos,
        mode=_mode(speculation.mode),
        max_draft_tokens=speculation.max_draft_tokens if speculation.HasField("max_draft_tokens") else None,
        strict=speculation.strict,
        stats=speculation.stats,
        audit=speculation.audit,
        explain=speculation.explain,
        bands=tuple(
            Band(getattr(each, "from"), each.to if each.HasField("to") else None, tuple(map(_mode, each.modes)))
            for each in speculation.bands
        ),
        names=NAMES | {"input": INPUTS.get(message.WhichOneof("input") or "", "input")},
    )


def _mode(value: types_pb2.SpeculationMode.ValueType) -> str:
    try:
        return MODES.name(value) or "auto"
    except InvalidRequest:
        return str(value)  # no mode, and refused as such with everything else


def _band(band: Band) -> types_pb2.SpeculationBand:
    message = types_pb2.SpeculationBand(to=band.end, modes=[MODES.value(mode) for mode in band.modes])
    setattr(message, "from", band.start)  # a keyword of Python
    return message


INPUTS = {"chat": "chat.messages", "text": "text", "token_ids": "token_ids.ids"}


def _input_of(message: generation_pb2.GenerateRequest) -> Chat | Text | TokenIds:
    match message.WhichOneof("input"):
        case "chat":
            for index, each in enumerate(message.chat.messages):
                if each.role not in ROLES:
                    field = f"chat.messages[{index}].role"
                    raise InvalidRequest(f"{field} must be one of {', '.join(ROLES)}, not {each.role!r}", field=field)
            return Chat(tuple({"role": each.role, "content": each.content} for each in message.chat.messages))
        case "text":
            return Text(message.text)
        case "token_ids":
            return TokenIds(tuple(message.token_ids.ids))
        case _:
            raise InvalidRequest("input is required: one of chat, text, token_ids", field="input")


def target_request(
    request: GenerationRequest, *, choice: int, prompt_ids: Sequence[int], tokenizer_hash: str, seed: int
) -> target_pb2.TargetServiceGenerateRequest:
    """One choice of a checked request."""
    sampling = types_pb2.Sampling(
        **{name: getattr(request, name) for name in SAMPLING if name != "seed"},
        seed=seed,
        logit_bias=[types_pb2.LogitBias(id=id, bias=bias) for id, bias in request.logit_bias.items()],
        banned_ids=request.banned_ids,
    )
    return target_pb2.TargetServiceGenerateRequest(
        request_id=request.id,
        choice=choice,
        model=request.model or "",
        tokenizer_hash=tokenizer_hash,
        prompt_ids=prompt_ids,
        max_tokens=request.max_tokens,
        logprobs=request.logprobs,
        sampling=sampling,
        stopping=types_pb2.Stopping(strings=request.stop, ids=request.stop_ids, ignore_eos=request.ignore_eos),
        speculation=types_pb2.Speculation(
            mode=MODES.value(request.mode),
            max_draft_tokens=request.max_draft_tokens,
            strict=request.strict,
            stats=True,  # they are counted, whether the client wants to see them or not
            audit=request.audit,
            explain=request.explain,
            bands=[_band(each) for each in request.bands],
        ),
    )
