"""What a chat gets that streams."""

import asyncio
import json

import pytest
from openai.types.chat import ChatCompletionChunk
from prometheus_client import CollectorRegistry
from tandem.v1.target_pb2 import TargetServiceGenerateResponse
from tandem.v1.types_pb2 import Token

from services.gateway.app import create_app
from services.gateway.generate import Generator
from services.gateway.metrics import Metrics
from services.gateway.rest.body import Limits
from services.gateway.targets import Target
from services.wire.clients import target_channel
from tests.gateway.peers import BODY, frames
from tests.gateway.scripted_target import ends, reaches, says, stops

pytestmark = pytest.mark.anyio

JSON = [(b"content-type", b"application/json")]


async def test_a_stream_is_one_frame_a_round_then_the_end_then_the_mark(gateway):
    async with gateway(lambda request: [says("Hel"), says("lo"), ends("!")]) as peers:
        response = await peers.chat(stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, mark = frames(response)
    assert mark == "[DONE]"
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {"content": "!"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["system_fingerprint"]) for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    assert ["speculation" in chunk for chunk in chunks] == [False, False, False, True]


async def test_every_chunk_is_valid_for_openais_client(gateway):
    async with gateway(lambda request: [says("Hel", origin="accepted"), ends("lo")]) as peers:
        response = await peers.chat(
            stream=True, n=3, logprobs=True, top_logprobs=2, stream_options={"include_usage": True}
        )
        for chunk in frames(response)[:-1]:
            ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)
            assert all("finish_reason" in choice for choice in chunk["choices"])
        stream = await peers.openai.chat.completions.create(**BODY, stream=True)
        texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(texts) == "Hello"


async def test_token_ids_come_when_asked_for_and_are_those_of_the_whole_answer(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        *chunks, _ = frames(await peers.chat(stream=True, return_token_ids=True))
        (whole,) = (await peers.chat(return_token_ids=True)).json()["choices"]
        (silent,) = (await peers.chat()).json()["choices"]
    streamed = [id for chunk in chunks for choice in chunk["choices"] for id in choice.get("token_ids", ())]
    assert streamed == whole["token_ids"]
    assert len(streamed) == 6
    assert "token_ids" not in silent


@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
async def test_usage_comes_only_when_asked_for(gateway, options):
    async with gateway() as peers:
        *chunks, _ = frames(await peers.chat(stream=True, **options))
    assert not any(chunk.get("usage") for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)
    assert chunks[-1]["speculation"]["requested"] == "auto"


async def test_usage_is_a_last_chunk_without_choices_and_carries_the_report(gateway):
    async with gateway() as peers:
        *chunks, last, _ = frames(await peers.chat(stream=True, stream_options={"include_usage": True}))
        whole = (await peers.chat()).json()
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert "speculation" in last
    assert not any("speculation" in chunk for chunk in chunks)


@pytest.mark.parametrize(
    "last", [ends("x"), ends(), stops("x.", ".", at=3), reaches("length", "x"), reaches("context", "x")]
)
async def test_streamed_and_whole_answers_agree(gateway, last):
    async with gateway(lambda request: [says("éa"), last]) as peers:
        whole = (await peers.chat(stop=".", seed=1, logprobs=True)).json()
        *chunks, tail, _ = frames(
            await peers.chat(stop=".", seed=1, logprobs=True, stream=True, stream_options={"include_usage": True})
        )
    choices = [chunk["choices"][0] for chunk in chunks]
    assert (
        "".join(choice["delta"].get("content", "") for choice in choices) == whole["choices"][0]["message"]["content"]
    )
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
    assert reasons == [whole["choices"][0]["finish_reason"]]
    entries = [entry for choice in choices for entry in (choice["logprobs"] or {}).get("content", [])]
    assert entries == whole["choices"][0]["logprobs"]["content"]
    assert tail["usage"] == whole["usage"]
    assert tail["speculation"] == whole["speculation"]


async def test_an_end_token_as_the_first_token_still_gives_role_and_reason(gateway):
    async with gateway(lambda request: [ends()]) as peers:
        first, last, _ = frames(await peers.chat(stream=True))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == "stop"


async def test_choices_interleave_as_their_rounds_come(gateway):
    turns = [asyncio.Event() for _ in range(2)]

    def script(request):
        if request.choice == 0:
            return [says("a"), turns[0], ends("A")]
        return [turns[1], says("b"), ends("B")]

    seen = []
    async with (
        gateway(script) as peers,
        peers.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True, "n": 2}) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                (choice,) = chunk["choices"]
                seen.append((choice["index"], choice["delta"].get("content"), choice["finish_reason"]))
                assert ("speculation" in chunk) == (seen[-1] == (0, None, "stop"))
                if seen[-1] == (0, "a", None):
                    turns[1].set()
                if seen[-1] == (1, None, "stop"):
                    turns[0].set()
    assert seen == [
        (0, "a", None),
        (1, "b", None),
        (1, "B", None),
        (1, None, "stop"),
        (0, "A", None),
        (0, None, "stop"),
    ]


async def test_a_round_reaches_the_client_before_the_next_is_drawn(gateway):
    more = asyncio.Event()
    async with gateway(lambda request: [says("one"), more, ends("two")]) as peers:
        stream = await peers.openai.chat.completions.create(**BODY, stream=True)
        assert (await anext(aiter(stream))).choices[0].delta.content == "one"
        assert peers.target.calls[0].outcome is None
        more.set()
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["two", None]


async def test_a_slow_client_holds_the_target_back(gateway):
    """Nothing is read ahead without limit: a client that takes nothing stops the rounds."""
    sent, taken, closed = 0, asyncio.Event(), asyncio.Event()
    big = TargetServiceGenerateResponse(tokens=[Token(id=5)] * 10_000)

    def script(request):
        nonlocal sent
        while True:
            sent += 1
            yield big

    bodies = [json.dumps(BODY | {"stream": True}).encode()]

    async def receive():
        if bodies:
            return {"type": "http.request", "body": bodies.pop()}
        await closed.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        taken.set()
        await closed.wait()

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": JSON}
    async with gateway(script) as peers, target_channel(peers.target_server.address) as channel:
        generator = Generator(Target(channel), Metrics(CollectorRegistry()), max_choices=1, timeout_s=600)
        app = create_app(generator, limits=Limits(1000, 600), ping_s=600)
        chat = asyncio.create_task(app(scope, receive, send))
        await taken.wait()
        before = -1
        while sent != before:
            before = sent
            for _ in range(3000):
                await asyncio.sleep(0)
        assert peers.target.calls[0].outcome is None
        closed.set()
        await chat
        await peers.target.calls[0].ended.wait()
