"""From a body's JSON to what is asked of the core: the part that all APIs share."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from services.errors import InvalidRequest, Unsupported
from services.gateway.request import Band, shown
from services.gateway.rest.fields import Body, Part

Model = TypeVar("Model", bound=BaseModel)

SAME = (
    "model",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)
"""Fields of one value, by the same name here and there."""

Neutral = Mapping[str, tuple[object, ...]]
"""Fields that would change the output and are not there, with the values that ask for nothing."""

NOWHERE: Neutral = {
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "typical_p": (1,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "grammar": (),
}


def validated(model: type[Model], value: Mapping[str, Any]) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(error) from None


def refuse_all(body: Body, neutral: Neutral) -> None:
    for name, values in neutral.items():
        refuse(name, (body.model_extra or {}).get(name), values)


def refuse(field: str, value: object, neutral: tuple[object, ...]) -> None:
    if value is not None and value not in neutral:
        raise Unsupported(f"{field} is not supported", field=field)


def bad(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {why}", field=field)


def common(body: Body, raw: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What every API says alike, as fields of a GenerationRequest; `names` are those of the others."""
    ours = {"stop_ids": "stop_token_ids"}
    ours |= {name: f"speculation.{name}" for name in ("mode", "max_draft_tokens", "strict", "bands")}
    if isinstance(raw.get("speculation"), str):
        ours["mode"] = ours["strict"] = "speculation"
    speculation = body.speculation
    return {
        **{name: getattr(body, name) for name in SAME},
        "logit_bias": _logit_bias(body.logit_bias or {}),
        "stop_ids": tuple(body.stop_token_ids or ()),
        "ignore_eos": bool(body.ignore_eos),
        "mode": "auto" if speculation.mode is None else speculation.mode,
        "max_draft_tokens": speculation.max_draft_tokens,
        "strict": bool(speculation.strict),
        "stats": bool(speculation.stats),
        "audit": bool(speculation.audit),
        "explain": bool(speculation.explain),
        "bands": tuple(Band(each.start, each.to, tuple(each.modes)) for each in speculation.bands or ()),
        "names": {**ours, **names},
    }


def joined(parts: Sequence[Part], path: str) -> str:
    """The text of parts, which must all be text."""
    for index, part in enumerate(parts):
        if part.type != "text":
            field = f"{path}[{index}].type"
            raise Unsupported(f"{field} {shown(part.type)} is not supported; text is", field=field)
        if part.text is None:
            raise bad(f"{path}[{index}].text", "is required")
    return "".join(part.text or "" for part in parts)


def _logit_bias(entries: Mapping[str, float]) -> Mapping[int, float]:
    for key in entries:
        if not re.fullmatch(r"0|[1-9][0-9]{0,18}", key):
            raise bad(f"logit_bias.{key}", "must be named by a token id")
    return {int(key): bias for key, bias in entries.items()}


WORDS = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "too_short": "must not be empty",
    "extra_forbidden": "is not known",
}


def _invalid(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False)[0]
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).lstrip(".")
    return bad(field, WORDS.get(first["type"], first["msg"]))
