"""Messages to prompt ids by the model's own chat template."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import jinja2
from jinja2 import nodes

from services.errors import BadCheckpoint, InvalidRequest, TandemError
from services.text import special
from services.text.controls import Pieces
from services.text.files import TokenizerFiles
from services.text.provenance import divide
from services.text.sandbox import SECONDS, Clock, Refused, Sandbox
from services.text.tokenizer import Tokenizer

REASONING = ("reasoning_content", "thinking", "reasoning")  # names for the same thing; templates read the first


class ChatTemplate:
    """Safe to share between threads."""

    def __init__(self, sources: Mapping[str, str], tokens: Mapping[str, str], *, seconds: float = SECONDS) -> None:
        """`sources` has a template named `default`, and may have one named `tool_use`; `tokens` are variables."""
        self._sandbox = Sandbox()
        self._tokens = dict(tokens)
        self._seconds = seconds
        try:
            self._templates = {name: self._sandbox.from_string(source) for name, source in sources.items()}
            trees = [self._sandbox.parse(source) for source in sources.values()]
        except jinja2.TemplateError as error:
            raise BadCheckpoint(f"the chat template cannot be compiled: {error}") from error
        constants = [node.value for tree in trees for node in tree.find_all(nodes.Const)]
        self._sought = {value for value in constants if isinstance(value, str)}

    @classmethod
    def of(cls, files: TokenizerFiles, *, seconds: float = SECONDS) -> Self | None:
        """None when the model has none, or several of which none is the default; BadCheckpoint for a broken one."""
        sources = files.templates
        if len(sources) == 1:
            sources = {"default": next(iter(sources.values()))}
        return cls(sources, special.named(files), seconds=seconds) if "default" in sources else None

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        /,
        **given: Any,  # noqa: ANN401
    ) -> list[int]:
        """The ids of `pieces`."""
        try:
            return tokenizer.encode_pieces(self.pieces(tokenizer, messages, **given))
        except TandemError as error:
            raise InvalidRequest(str(error), field="messages") from error

    def pieces(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: object,
    ) -> Pieces:
        """What makes, encoded, the ids that transformers gives, except that no text in `messages`, `tools` or `kwargs`
        becomes control. InvalidRequest when the template refuses, fails or takes too long."""
        template = self._templates.get("tool_use") if tools is not None else None
        clock = Clock(datetime.now(), self._seconds)
        given = {
            "documents": None,
            **kwargs,
            "messages": [_normal(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }

        def render(values: Mapping[str, Any]) -> str:
            return self._sandbox.render(template or self._templates["default"], self._tokens | dict(values), clock)

        try:
            return divide(tokenizer.controls, render, given, self._sought)
        except TandemError as error:
            raise InvalidRequest(str(error), field="messages") from error
        except Refused as error:
            raise InvalidRequest(f"the chat template refuses: {error}", field="messages") from error
        except Exception as error:  # it is somebody else's program
            raise InvalidRequest(f"the chat template fails on these messages: {error}", field="messages") from error


def _normal(message: Mapping[str, Any]) -> dict[str, Any]:
    """As transformers does it: null means absent, and reasoning is found under the names that templates read."""
    result = {key: value for key, value in message.items() if value is not None}
    reasoning = next((result[name] for name in REASONING if name in result), None)
    if reasoning is not None:
        result = {"thinking": reasoning, **result, "reasoning_content": reasoning}
    return result
