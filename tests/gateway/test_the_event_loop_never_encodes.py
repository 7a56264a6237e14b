"""Megabytes are parsed, rendered and encoded on other threads, so that probes and the streams of others go on."""

import asyncio
import threading

import pytest
from tandem.v1 import generation_pb2 as pb

from services.gateway.anthropic import request as messages_request
from services.gateway.openai import chat_request, completion_request
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import ends

pytestmark = pytest.mark.anyio

CHAT = pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")]))
ANSWER = [ends("Hello")]
ALL = {"parse", "pieces", "encode_pieces"}
ROUTES = [
    ("/v1/chat/completions", BODY, ALL),
    ("/v1/completions", PROMPT, ALL - {"pieces"}),
    ("/v1/messages", MESSAGES, ALL),
    ("/v1/messages/count_tokens", BODY, ALL),
    ("grpc", CHAT, ALL - {"parse"}),
]


@pytest.fixture
def seen(monkeypatch):
    """The work of a request, and the threads that did it."""
    seen: dict[str, set[int]] = {}

    def watch(owner, name):
        real = getattr(owner, name)

        def watched(*args, **kwargs):
            seen.setdefault(name, set()).add(threading.get_ident())
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    for module in (chat_request, completion_request, messages_request):
        watch(module, "parse")
    watch(ChatTemplate, "pieces")
    watch(Tokenizer, "encode_pieces")
    return seen


@pytest.mark.parametrize(("path", "body", "work"), ROUTES, ids=[path for path, *_ in ROUTES])
async def test_every_route_works_on_other_threads(gateway, seen, path, body, work):
    async with gateway(lambda request: ANSWER) as peers:
        if path == "grpc":
            assert [message.text async for message in peers.stub.Generate(body)] == ["Hello"]
        else:
            assert (await peers.http.post(path, json=body)).status_code == 200
    assert set(seen) == work
    assert threading.get_ident() not in set.union(*seen.values())


async def test_a_prompt_that_is_being_encoded_keeps_nobody_waiting(gateway, monkeypatch):
    began, go_on, encode = threading.Event(), threading.Event(), Tokenizer.encode_pieces

    def held(tokenizer, pieces):
        if "slow" in pieces:
            began.set()
            assert go_on.wait(60)
        return encode(tokenizer, pieces)

    monkeypatch.setattr(Tokenizer, "encode_pieces", held)
    async with gateway() as peers:
        slow = asyncio.create_task(peers.complete(prompt="slow"))
        assert await asyncio.to_thread(began.wait, 60)
        assert (await peers.http.get("/ready")).status_code == 200
        assert (await peers.chat()).status_code == 200
        assert not slow.done()
        go_on.set()
        assert (await slow).status_code == 200
