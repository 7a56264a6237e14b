"""The ids of a request's prompt, and the room that is left behind them. Called off the event loop."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.errors import ContextTooLong, InvalidRequest
from services.gateway.request import Chat, GenerationRequest, Text, TokenIds
from services.gateway.targets import Served
from services.text.controls import Pieces


def encode(request: GenerationRequest, served: Served) -> list[int]:
    """Raises InvalidRequest for a prompt that is empty or cannot be made, ContextTooLong for one that does not fit: of
    one that cannot possibly fit, before it is encoded."""
    context = served.description.context_length
    ids = prompt_ids(request, served, context=context)
    _check_room(request, len(ids), context)
    return ids


def prompt_ids(request: GenerationRequest, served: Served, *, context: int | None = None) -> list[int]:
    """Whether they fit or not, unless a `context` is given that they cannot fit."""
    if isinstance(request.input, TokenIds):
        return list(request.input.ids)
    with _named(request):
        parts = _parts(request, served)
    fewest = sum(map(served.tokenizer.fewest, parts))
    if context is not None and fewest >= context:
        raise _too_long(request, f"at least {fewest}", context)
    with _named(request):
        ids = [id for pieces in parts for id in served.tokenizer.encode_pieces(pieces)]
    if not ids:
        field = request.name("input")
        raise InvalidRequest(f"{field} must give a prompt of at least one token", field=field)
    return ids


def _parts(request: GenerationRequest, served: Served) -> list[Pieces]:
    """What is encoded each by itself, and put together then."""
    match request.input:
        case Chat(messages, begun):
            if served.template is None:
                raise InvalidRequest(f"{served.description.model} has no chat template")
            return [served.template.pieces(served.tokenizer, messages), [begun]]
        case Text(text):
            return [[text]]
    raise AssertionError("ids need no encoding")


@contextmanager
def _named(request: GenerationRequest) -> Iterator[None]:
    """A refusal names the field as the client wrote it."""
    try:
        yield
    except InvalidRequest as error:
        field = request.name("input")
        raise InvalidRequest(f"{field}: {error}", field=field) from error


def _check_room(request: GenerationRequest, prompt: int, context: int) -> None:
    if prompt >= context:
        raise _too_long(request, str(prompt), context)
    if request.max_tokens is not None and prompt + request.max_tokens > context:
        field = request.name("max_tokens")
        raise ContextTooLong(
            f"{field} asks for {request.max_tokens} tokens and the prompt has {prompt}, "
            f"but the context holds {context}, prompt and output together",
            field=field,
        )


def _too_long(request: GenerationRequest, prompt: str, context: int) -> ContextTooLong:
    field = request.name("input")
    return ContextTooLong(
        f"{field} makes a prompt of {prompt} tokens, but the context holds {context}, prompt and output together",
        field=field,
    )
