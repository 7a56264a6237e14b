"""From the bytes of a messages request to what is asked of the core. Runs off the event loop."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from services.gateway.anthropic.fields import CountBody, Message, MessagesBody
from services.gateway.request import Chat, GenerationRequest, shown
from services.gateway.rest.body import parse
from services.gateway.rest.reading import NOWHERE, Neutral, bad, common, joined, refuse_all, validated

ROLES = ("user", "assistant", "system")
"""Agents put system turns among the messages, though the API has a field for them."""
NAMES = {"input": "messages", "stop": "stop_sequences"}

UNSUPPORTED: Neutral = {
    **NOWHERE,
    "tools": ([],),
    "tool_choice": ({"type": "none"}, {"type": "auto"}),
    "thinking": ({"type": "disabled"},),
    "output_config": ({},),
    "output_format": (),
    "mcp_servers": ([],),
    "container": (),
    "context_management": ({}, {"edits": []}),
    "n": (1,),
}


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    request: GenerationRequest
    stream: bool


def read(raw: bytes, *, id: str, counting: bool = False) -> MessagesRequest:
    """Raises InvalidRequest or Unsupported, which name the field. `counting` the prompt needs no `max_tokens`."""
    value = parse(raw)
    body = validated(CountBody if counting else MessagesBody, value)
    refuse_all(body, UNSUPPORTED)
    request = GenerationRequest(
        id=id,
        input=_chat(body),
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences or ()),
        **common(body, value, NAMES),
    )
    return MessagesRequest(request, bool(body.stream))


def _chat(body: CountBody) -> Chat:
    """Neighbours of one role are one turn. A last turn of the assistant is the beginning of the answer."""
    turns = [_turn(message, f"messages[{index}]") for index, message in enumerate(body.messages)]
    if body.system is not None:
        turns.insert(0, ("system", joined(body.system, "system")))
    messages = tuple(_merged(turns))
    if messages[-1]["role"] != "assistant":
        return Chat(messages)
    if len(messages) == 1:
        raise bad("messages", "must have a turn before the last one of the assistant, which is the answer's beginning")
    return Chat(messages[:-1], begun=messages[-1]["content"])


def _turn(message: Message, path: str) -> tuple[str, str]:
    if message.role not in ROLES:
        raise bad(f"{path}.role", f"must be one of {', '.join(ROLES)}, not {shown(message.role)}")
    return message.role, joined(message.content, f"{path}.content")


def _merged(turns: list[tuple[str, str]]) -> Iterator[Mapping[str, str]]:
    for role, same in groupby(turns, key=lambda turn: turn[0]):
        yield {"role": role, "content": "\n".join(content for _, content in same)}
