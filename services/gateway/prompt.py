"""The ids of a request's prompt, and the room that is left behind them. Called off the event loop."""

from services.errors import ContextTooLong, InvalidRequest
from services.gateway.request import Chat, GenerationRequest, Text
from services.gateway.targets import Served


def encode(request: GenerationRequest, served: Served) -> list[int]:
    """Raises InvalidRequest for a prompt that is empty or cannot be made, ContextTooLong for one that does not fit."""
    ids = prompt_ids(request, served)
    _check_room(request, len(ids), served.description.context_length)
    return ids


def prompt_ids(request: GenerationRequest, served: Served) -> list[int]:
    """Whether they fit or not."""
    ids = _ids(request, served)
    field = request.name("input")
    if not ids:
        raise InvalidRequest(f"{field} must give a prompt of at least one token", field=field)
    return ids


def _ids(request: GenerationRequest, served: Served) -> list[int]:
    match request.input:
        case Chat(messages, begun):
            if served.template is None:
                field = request.name("input")
                raise InvalidRequest(
                    f"{field} cannot be used: {served.description.model} has no chat template", field=field
                )
            try:
                return served.template.encode(served.tokenizer, messages) + served.tokenizer.encode(begun)
            except InvalidRequest as error:
                field = request.name("input")
                raise InvalidRequest(f"{field}: {error}", field=field) from error
        case Text(text):
            return served.tokenizer.encode(text)
        case tokens:
            return list(tokens.ids)


def _check_room(request: GenerationRequest, prompt: int, context: int) -> None:
    if prompt >= context:
        field = request.name("input")
        raise ContextTooLong(
            f"{field} makes a prompt of {prompt} tokens, but the context holds {context}, prompt and output together",
            field=field,
        )
    if request.max_tokens is not None and prompt + request.max_tokens > context:
        field = request.name("max_tokens")
        raise ContextTooLong(
            f"{field} asks for {request.max_tokens} tokens and the prompt has {prompt}, "
            f"but the context holds {context}, prompt and output together",
            field=field,
        )
