"""The requests of OpenAI's clients."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from services.gateway.rest.fields import Body, Parts, Strict, Text, text
from services.gateway.rest.reading import bad

PROMPTS = "must be a string, a list of strings, a list of token ids, or a list of such lists"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an answer has besides the usual."""

    usage: bool
    token_ids: bool


def _listed(value: object) -> object:
    if isinstance(value, str):
        return [text(value)]
    if value is not None and not isinstance(value, list):
        raise PydanticCustomError("stop", "must be a string or a list of strings")
    return value


def _prompts(value: object) -> object:
    """One form for four: a list of prompts, each a string or a list of ids."""
    if isinstance(value, str):
        return [text(value)]
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("prompt", PROMPTS)
    kinds = {type(each) for each in value}
    if kinds == {str}:
        return [text(each) for each in value]
    if kinds == {int}:
        return [value]
    if kinds != {list} or any(type(id) is not int for each in value for id in each):
        raise PydanticCustomError("prompt", PROMPTS)
    return value


class Message(Strict):
    role: Text
    content: Parts | None = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class StreamOptions(Strict):
    include_usage: bool | None = None


class OpenAIBody(Body):
    n: int | None = None
    max_tokens: int | None = None
    stop: Annotated[list[Text] | None, BeforeValidator(_listed)] = None
    stream_options: StreamOptions | None = None
    user: Text | None = None
    return_token_ids: bool | None = None

    @property
    def wanted(self) -> Wanted:
        if self.stream_options and not self.stream:
            raise bad("stream_options", "may be given only with stream: true")
        return Wanted(
            usage=bool(self.stream_options and self.stream_options.include_usage), token_ids=bool(self.return_token_ids)
        )


class ChatBody(OpenAIBody):
    """`max_completion_tokens` is the newer name of `max_tokens`, and wins where both are given."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionBody(OpenAIBody):
    prompt: Annotated[list[str | list[int]], BeforeValidator(_prompts)]
    logprobs: int | None = None
