"""Fields that every API has, as clients write them. Types are strict, and null in an optional field means absent."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from services.wire.codec import MODES


def text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text", "must be Unicode text, without half of a surrogate pair") from None
    return value


def _parts(value: object) -> object:
    if isinstance(value, str):
        return [{"type": "text", "text": text(value)}]
    if value is not None and (not isinstance(value, list) or not value):
        raise PydanticCustomError("content", "must be a string or a list of text parts")
    return value


def _speculation(value: object) -> object:
    if isinstance(value, str):
        return {"mode": text(value)}
    if not isinstance(value, dict):
        legal = ", ".join(MODES.legal)
        raise PydanticCustomError(
            "speculation", "must be one of {legal}, or an object with one as `mode`", {"legal": legal}
        )
    return value


Text = Annotated[str, AfterValidator(text)]


class Strict(BaseModel):
    """No value is turned into another type: "0.7" and true are no numbers."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())


class Part(Strict):
    type: Text
    text: Text | None = None


Parts = Annotated[list[Part], BeforeValidator(_parts)]
"""A bare string is one part of text."""


class Band(Strict):
    """Contexts of `from` to `to` - 1 tokens."""

    model_config = ConfigDict(extra="forbid")

    start: int = Field(default=0, alias="from")
    to: int | None = None
    modes: list[Text]


class Speculation(Strict):
    """Our own object, so an unknown key in it is a mistake."""

    model_config = ConfigDict(extra="forbid")

    mode: Text | None = None
    max_draft_tokens: int | None = None
    strict: bool | None = None
    stats: bool | None = None
    audit: bool | None = None
    explain: bool | None = None
    bands: list[Band] | None = None


class Body(Strict):
    """Fields that are in no subclass stay in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    model: Text
    stream: bool | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    speculation: Annotated[Speculation, BeforeValidator(_speculation)] = Speculation()
