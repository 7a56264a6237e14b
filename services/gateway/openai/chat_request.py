"""From the bytes of a chat request to what is asked of the core. Runs off the event loop: a body may be large."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.gateway.openai.fields import ChatBody, Message, Wanted
from services.gateway.request import Chat, GenerationRequest, shown
from services.gateway.rest.body import parse
from services.gateway.rest.reading import NOWHERE, Neutral, bad, common, joined, refuse, refuse_all, validated

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

UNSUPPORTED: Neutral = {
    **NOWHERE,
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
    "documents": ([],),
    "best_of": (1,),
    "echo": (False,),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    request: GenerationRequest
    stream: bool
    wanted: Wanted


def read(raw: bytes, *, id: str) -> ChatRequest:
    """Raises InvalidRequest or Unsupported, which name the field."""
    value = parse(raw)
    body = validated(ChatBody, value)
    refuse_all(body, UNSUPPORTED)
    return ChatRequest(_request(body, value, id), bool(body.stream), body.wanted)


def _request(body: ChatBody, raw: Mapping[str, Any], id: str) -> GenerationRequest:
    names = {"input": "messages", "logprobs": "top_logprobs"}
    if isinstance(raw.get("stop"), str):
        names["stop[]"] = "stop"
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return GenerationRequest(
        id=id,
        input=_chat(body),
        n=1 if body.n is None else body.n,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=_logprobs(body),
        stop=tuple(body.stop or ()),
        **common(body, raw, names),
    )


def _chat(body: ChatBody) -> Chat:
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(body.messages))
    if not body.continue_final_message:
        refuse("add_generation_prompt", body.add_generation_prompt, (True,))
        return Chat(messages)
    if body.add_generation_prompt:
        raise bad("add_generation_prompt", "must be false with continue_final_message: true")
    if messages[-1]["role"] != "assistant":
        raise bad("continue_final_message", "needs a last message of the assistant to go on with")
    return Chat(messages[:-1], begun=messages[-1]["content"])


def _message(message: Message, path: str) -> Mapping[str, str]:
    refuse(f"{path}.tool_calls", message.tool_calls, ([],))
    refuse(f"{path}.function_call", message.function_call, ())
    refuse(f"{path}.audio", message.audio, ())
    if message.role not in ROLES:
        raise bad(f"{path}.role", f"must be one of {', '.join(ROLES)}, not {shown(message.role)}")
    if message.content is None:
        raise bad(f"{path}.content", "is required: a string or a list of text parts")
    return {"role": ROLES[message.role], "content": joined(message.content, f"{path}.content")}


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs is not None:
        raise bad("top_logprobs", "may be given only with logprobs: true")
    return None
