"""From the bytes of a chat request to what is asked of the core. Runs off the event loop: a body may be large."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from services.errors import InvalidRequest, Unsupported
from services.gateway.openai.body import parse
from services.gateway.openai.schema import ChatBody, Message, Speculation
from services.gateway.request import Chat, GenerationRequest, shown

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

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# Fields of others that would change the output, with the values that ask for nothing.
UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "enable_thinking": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "documents": ([],),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "typical_p": (1,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "logits_processors": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "echo": (False,),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "grammar": (),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    request: GenerationRequest
    stream: bool
    include_usage: bool
    token_ids: bool


def read(raw: bytes) -> ChatRequest:
    """Raises InvalidRequest or Unsupported, which name the field."""
    value = parse(raw)
    try:
        body = ChatBody.model_validate(value)
    except ValidationError as error:
        raise _invalid(error) from None
    for name, neutral in UNSUPPORTED.items():
        _refuse(name, (body.model_extra or {}).get(name), neutral)
    stream, options = bool(body.stream), body.stream_options
    if options and not stream:
        raise _bad("stream_options", "may be given only with stream: true")
    return ChatRequest(
        _request(body, value),
        stream,
        include_usage=bool(options and options.include_usage),
        token_ids=bool(body.return_token_ids),
    )


def _request(body: ChatBody, raw: Mapping[str, Any]) -> GenerationRequest:
    names = {"input": "messages", "logprobs": "top_logprobs", "stop_ids": "stop_token_ids"}
    names |= {name: f"speculation.{name}" for name in ("mode", "max_draft_tokens", "strict")}
    if isinstance(raw.get("speculation"), str):
        names["mode"] = names["strict"] = "speculation"
    if isinstance(raw.get("stop"), str):
        names["stop[]"] = "stop"
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    speculation = _speculation(body.speculation)
    return GenerationRequest(
        id=uuid.uuid4().hex,
        input=Chat(tuple(_message(message, f"messages[{index}]") for index, message in enumerate(body.messages))),
        **{name: getattr(body, name) for name in SAME},
        n=1 if body.n is None else body.n,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=_logprobs(body),
        logit_bias=_logit_bias(body.logit_bias or {}),
        stop=tuple(body.stop or ()),
        stop_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        mode="auto" if speculation.mode is None else speculation.mode,
        max_draft_tokens=speculation.max_draft_tokens,
        strict=bool(speculation.strict),
        stats=bool(speculation.stats),
        names=names,
    )


def _message(message: Message, path: str) -> Mapping[str, str]:
    _refuse(f"{path}.tool_calls", message.tool_calls, ([],))
    _refuse(f"{path}.function_call", message.function_call, ())
    _refuse(f"{path}.audio", message.audio, ())
    if message.role not in ROLES:
        raise _bad(f"{path}.role", f"must be one of {', '.join(ROLES)}, not {shown(message.role)}")
    if message.content is None:
        raise _bad(f"{path}.content", "is required: a string or a list of text parts")
    for index, part in enumerate(message.content):
        if part.type != "text":
            field = f"{path}.content[{index}].type"
            raise Unsupported(f"{field} {shown(part.type)} is not supported; text is", field=field)
        if part.text is None:
            raise _bad(f"{path}.content[{index}].text", "is required")
    return {"role": ROLES[message.role], "content": "".join(part.text or "" for part in message.content)}


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs is not None:
        raise _bad("top_logprobs", "may be given only with logprobs: true")
    return None


def _logit_bias(entries: Mapping[str, float]) -> Mapping[int, float]:
    for key in entries:
        if not re.fullmatch(r"0|[1-9][0-9]{0,18}", key):
            raise _bad(f"logit_bias.{key}", "must be named by a token id")
    return {int(key): bias for key, bias in entries.items()}


def _speculation(asked: Speculation) -> Speculation:
    _refuse("speculation.audit", asked.audit, (False,))
    _refuse("speculation.bands", asked.bands, ([],))
    return asked


def _refuse(field: str, value: object, neutral: tuple[object, ...]) -> None:
    if value is not None and value not in neutral:
        raise Unsupported(f"{field} is not supported", field=field)


def _bad(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {why}", field=field)


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
    return _bad(field, WORDS.get(first["type"], first["msg"]))
