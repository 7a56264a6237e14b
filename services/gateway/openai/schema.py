"""The chat request as OpenAI's clients write it. Types are strict, and null in an optional field means absent."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from services.wire.codec import MODES


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text", "must be Unicode text, without half of a surrogate pair") from None
    return value


def _parts(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": _text(value)}]
    if value is not None and (not isinstance(value, list) or not value):
        raise PydanticCustomError("content", "must be a string or a list of text parts")
    return value


def _listed(value: object) -> object:
    if isinstance(value, str):
        return [_text(value)]
    if value is not None and not isinstance(value, list):
        raise PydanticCustomError("stop", "must be a string or a list of strings")
    return value


def _speculation(value: object) -> object:
    if isinstance(value, str):
        return {"mode": _text(value)}
    if not isinstance(value, dict):
        legal = ", ".join(MODES.legal)
        raise PydanticCustomError(
            "speculation", "must be one of {legal}, or an object with one as `mode`", {"legal": legal}
        )
    return value


Text = Annotated[str, AfterValidator(_text)]


class Strict(BaseModel):
    """No value is turned into another type: "0.7" and true are no numbers."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())


class Part(Strict):
    type: Text
    text: Text | None = None


class Message(Strict):
    role: Text
    content: Annotated[list[Part] | None, BeforeValidator(_parts)] = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class StreamOptions(Strict):
    include_usage: bool | None = None


class Speculation(Strict):
    """Our own object, so an unknown key in it is a mistake."""

    model_config = ConfigDict(extra="forbid")

    mode: Text | None = None
    max_draft_tokens: int | None = None
    strict: bool | None = None
    stats: bool | None = None
    audit: bool | None = None
    bands: list[Any] | None = None


class ChatBody(Strict):
    """Fields that are not here stay in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    model: Text
    messages: Annotated[list[Message], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    seed: int | None = None
    stop: Annotated[list[Text] | None, BeforeValidator(_listed)] = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    user: Text | None = None
    return_token_ids: bool | None = None
    speculation: Annotated[Speculation, BeforeValidator(_speculation)] = Speculation()
