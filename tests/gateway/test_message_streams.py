"""What Anthropic's clients get that stream."""

import asyncio
import json

import anthropic
import pytest

from tests.gateway.peers import MESSAGES, events
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio

ORDER = ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]


async def test_a_stream_is_one_message_with_one_block_in_the_order_of_the_api(gateway):
    async with gateway(lambda request: [says("Hel", origin="accepted"), says("lo"), ends()]) as peers:
        answer = await peers.messages(stream=True, seed=5)
        whole = (await peers.messages(seed=5)).json()
    assert answer.headers["content-type"].startswith("text/event-stream")
    start, opened, *deltas, closed, end, stop = events(answer)
    assert [event["type"] for event in (start, opened, closed, end, stop)] == ORDER
    assert start["message"] == {
        "id": start["message"]["id"],
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": whole["usage"] | {"output_tokens": 0},
    }
    assert opened == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    assert deltas == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in ("Hel", "lo")
    ]
    assert closed == {"type": "content_block_stop", "index": 0}
    assert end == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": whole["usage"],
        "speculation": whole["speculation"],
    }
    assert stop == {"type": "message_stop"}


async def test_anthropics_client_builds_the_same_message_from_a_stream(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        whole = await peers.anthropic.messages.create(**MESSAGES)
        async with peers.anthropic.messages.stream(**MESSAGES) as stream:
            texts = [text async for text in stream.text_stream]
            built = await stream.get_final_message()
    assert texts == ["Hel", "lo"]
    assert built.model_dump(include={"content", "usage", "stop_reason"}) == whole.model_dump(
        include={"content", "usage", "stop_reason"}
    )


async def test_a_stream_of_nothing_has_every_event_but_a_delta(gateway):
    async with gateway(lambda request: [ends()]) as peers:
        assert [event["type"] for event in events(await peers.messages(stream=True))] == ORDER


async def test_a_client_that_waits_long_hears_pings_after_the_start(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    go_on = asyncio.Event()
    async with (
        gateway(lambda request: [go_on, ends("late")], own=True) as peers,
        peers.http.stream("POST", "/v1/messages", json=MESSAGES | {"stream": True}) as response,
    ):
        types = []
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                types.append(json.loads(line.removeprefix("data: "))["type"])
                if types.count("ping") == 2:
                    go_on.set()
    assert types[:2] == ORDER[:2]
    assert [type for type in types if type != "ping"] == [*ORDER[:2], "content_block_delta", *ORDER[2:]]


async def test_a_stream_that_never_gets_as_far_as_a_prompt_is_pings_and_an_error(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    monkeypatch.setattr("services.gateway.targets.CONNECT_S", 0.2)
    async with gateway(loading=True) as peers:
        await peers.stop_target()
        answer = await peers.messages(stream=True)
    *pings, last = events(answer)
    assert {event["type"] for event in pings} == {"ping"}
    assert last["error"]["type"] == "overloaded_error"


async def test_an_error_in_a_stream_is_its_last_event(gateway):
    async with gateway(lambda request: [says("a"), ZeroDivisionError("secret")]) as peers:
        answer = await peers.messages(stream=True)
        with pytest.raises(anthropic.APIStatusError):
            async with peers.anthropic.messages.stream(**MESSAGES) as stream:
                await stream.get_final_message()
    assert answer.status_code == 200
    *before, last = events(answer)
    assert [event["type"] for event in before] == [*ORDER[:2], "content_block_delta"]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "internal error"},
        "request_id": answer.headers["request-id"],
    }
