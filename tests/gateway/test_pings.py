"""A client that waits hears by the clock that the server lives: before the first token, between tokens, on every route
that streams. Whoever reads the stream as its API has it does not notice."""

import asyncio
import json

import pytest

from services.gateway.anthropic.answer import MessagesAnswer
from services.gateway.openai.chat_answer import ChatAnswer
from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio

ROUTES = {"/v1/chat/completions": BODY, "/v1/completions": PROMPT, "/v1/messages": MESSAGES}


class Slow:
    """Stands still before its first round and after it, each time until the test goes on."""

    def __init__(self):
        self.waits = asyncio.Event(), asyncio.Event()

    def __call__(self, request):
        first, second = self.waits
        return [first, says("Hel"), second, ends("lo")]


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)


def is_ping(block: list[str]) -> bool:
    return all(line.startswith(":") for line in block) or block[0] == "event: ping"


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("path", ROUTES)
async def test_they_come_in_every_silence_and_never_within_an_event(gateway, path):
    slow, block, pings, said = Slow(), [], [0, 0], []
    async with (
        asyncio.timeout(60),
        gateway(slow, own=True) as peers,
        peers.http.stream("POST", path, json=ROUTES[path] | {"stream": True}) as response,
    ):
        async for line in response.aiter_lines():
            if line:
                block.append(line)
                continue
            if is_ping(block):
                begun = any("Hel" in each for each in said)
                pings[begun] += 1
                if pings[begun] == 2:
                    slow.waits[begun].set()
            else:
                said += [each.removeprefix("data: ") for each in block if not each.startswith("event: ")]
            block = []
    assert min(pings) >= 2
    values = [json.loads(each) for each in said if each != "[DONE]"]
    assert "Hel" in json.dumps(values)
    assert "lo" in json.dumps(values[-4:])


async def chat(peers):
    async for chunk in await peers.openai.chat.completions.create(**BODY, stream=True):
        yield chunk.choices[0].delta.content or ""


async def message(peers):
    async with peers.anthropic.messages.stream(**MESSAGES) as stream:
        async for text in stream.text_stream:
            yield text


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize(("texts", "kind"), [(chat, ChatAnswer), (message, MessagesAnswer)])
async def test_official_clients_pass_them_over(gateway, monkeypatch, texts, kind):
    slow, pings, ping = Slow(), [0, 0], kind.ping
    seen: list[str] = []

    def counted(answer):
        pings[bool(seen)] += 1
        if pings[bool(seen)] == 2:
            slow.waits[bool(seen)].set()
        return ping(answer)

    monkeypatch.setattr(kind, "ping", counted)
    async with asyncio.timeout(60), gateway(slow, own=True) as peers:
        async for text in texts(peers):
            seen.append(text)
    assert "".join(seen) == "Hello"
    assert min(pings) >= 2
