"""The requests of Anthropic's clients."""

from typing import Annotated, Any

from pydantic import Field

from services.gateway.rest.fields import Body, Parts, Strict, Text


class Message(Strict):
    role: Text
    content: Parts


class CountBody(Body):
    """What a prompt is made of; the fields of the answer are checked and then of no interest."""

    messages: Annotated[list[Message], Field(min_length=1)]
    system: Parts | None = None
    max_tokens: int | None = None
    stop_sequences: list[Text] | None = None
    metadata: dict[str, Any] | None = None


class MessagesBody(CountBody):
    max_tokens: int
