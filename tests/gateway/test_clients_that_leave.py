"""A client that leaves ends its sequences at the target, whatever it was waiting for."""

import asyncio

import pytest
from tandem.v1 import generation_pb2 as pb

from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio


class Held:
    """A script that stands still until the test lets it go on; `n` calls of it."""

    def __init__(self, *before):
        self.before, self.go_on = before, asyncio.Event()

    def __call__(self, request):
        return [*self.before, self.go_on, ends()]


async def all_cancelled(target) -> None:
    for call in target.calls:
        await call.ended.wait()
    assert {call.outcome for call in target.calls} == {"cancelled"}


ROUTES = {
    "chat": ("/v1/chat/completions", BODY, 1),
    "chat of three": ("/v1/chat/completions", BODY | {"n": 3}, 3),
    "completion": ("/v1/completions", PROMPT, 1),
    "completions of two prompts": ("/v1/completions", PROMPT | {"prompt": ["a", "b"], "n": 2}, 4),
    "message": ("/v1/messages", MESSAGES, 1),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["before the first token", "after it"])
@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_cancels_all_calls(gateway, stream, before, route):
    path, body, calls = ROUTES[route]
    async with gateway(Held(*before)) as peers:
        asking = asyncio.create_task(peers.http.post(path, json=body | {"stream": stream}))
        await peers.target.called(calls)
        asking.cancel()
        await all_cancelled(peers.target)
        with pytest.raises(asyncio.CancelledError):
            await asking
        peers.target.script = lambda request: [ends("next")]
        assert (await peers.chat()).json()["choices"][0]["message"]["content"] == "next"


async def test_leaving_in_the_middle_of_a_long_stream_cancels_it(gateway):
    def script(request):
        while True:
            yield says("word ")

    async with gateway(script) as peers:
        async with peers.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response:
            lines = response.aiter_lines()
            for _ in range(10):
                await anext(lines)
        await all_cancelled(peers.target)


async def test_leaving_a_stream_that_has_only_sent_comments_cancels_it(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    async with gateway(Held(), own=True) as peers:
        async with peers.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response:
            assert (await anext(response.aiter_lines())).startswith(":")
        await all_cancelled(peers.target)


async def test_leaving_through_the_official_client_cancels_too(gateway):
    async with gateway(Held(says("a"))) as peers:
        stream = await peers.openai.chat.completions.create(**BODY, stream=True)
        await anext(aiter(stream))
        await stream.close()
        await all_cancelled(peers.target)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["before the first token", "after it"])
async def test_cancelling_a_grpc_call_cancels_its_calls(gateway, before, n):
    async with gateway(Held(*before)) as peers:
        call = peers.stub.Generate(pb.GenerateRequest(text="hi", n=n))
        if before:
            await call.read()
        await peers.target.called(n)
        call.cancel()
        await all_cancelled(peers.target)


async def test_an_answer_that_ends_by_itself_cancels_nothing(gateway):
    async with gateway() as peers:
        await peers.chat(n=3)
        await peers.chat(stream=True, n=3)
        async for _ in peers.stub.Generate(pb.GenerateRequest(text="hi")):
            pass
        for call in peers.target.calls:
            await call.ended.wait()
    assert [call.outcome for call in peers.target.calls] == ["finished"] * 7


async def test_requests_that_end_in_every_way_leave_nothing_behind(gateway):
    """Answered, refused, broken, out of time, left: twenty at once, twice over."""
    never = asyncio.Event()
    scripts = [lambda: [says("a"), ends()], lambda: [says("a"), ZeroDivisionError()], lambda: [says("a"), never]]

    def script(request):
        return scripts[request.prompt_ids[0] - 5]()

    async with gateway(script, own=True, request_timeout_s=1, grace_s=3600) as peers:
        for _ in range(2):
            asked = []
            for number in range(20):
                fields = {"prompt": [5 + number % 3], "stream": number % 2 == 0, "n": -1 if number % 7 == 0 else 2}
                asked.append(asyncio.create_task(peers.complete(**fields)))
            await peers.target.called(10)
            for leaving in asked[::5]:
                leaving.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        for call in peers.target.calls:
            await call.ended.wait()
        metrics = "tandem_gateway_num_requests 1.0"
        while "tandem_gateway_num_requests 0.0" not in metrics:
            metrics = (await peers.http.get("/metrics")).text
        await asyncio.wait_for(peers.stop(), 60)  # it waits for whatever it believes to be running
    assert {call.outcome for call in peers.target.calls} == {"finished", "failed", "cancelled"}
