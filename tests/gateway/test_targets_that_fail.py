"""What clients see when the target refuses, breaks, restarts, or is not there."""

import asyncio
import json

import grpc
import openai
import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1.target_pb2 import TargetServiceGenerateResponse

from services.errors import (
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    Overloaded,
    TandemError,
    Unavailable,
    Unsupported,
)
from services.gateway.targets import Target
from services.wire.clients import target_channel
from services.wire.serving import serving, target_service
from services.wire.status import raising
from tests.gateway.peers import BODY, frames
from tests.gateway.scripted_target import FILES, Round, ScriptedTarget, byte_files, ends, says

pytestmark = pytest.mark.anyio

REFUSALS = [
    (Overloaded("the queue is full", retry_after_s=1.5), 429, "rate_limit_exceeded", None),
    (Unsupported("dflash cannot run", field="speculation.mode"), 400, "unsupported_parameter", "speculation"),
    (InvalidRequest("must be better", field="sampling.temperature"), 400, None, "temperature"),
    (InvalidRequest("must be nicer", field="stopping.strings[0]"), 400, None, "stop"),
    (DeadlineExceeded("time is up"), 504, "deadline_exceeded", None),
    (Internal("secret"), 500, "internal_error", None),
    (ZeroDivisionError("secret"), 500, "internal_error", None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code", "param"), REFUSALS, ids=lambda each: type(each).__name__)
async def test_a_refusal_is_a_status_of_its_own_and_never_a_stream(gateway, error, status, code, param, stream):
    async with gateway(lambda request: [error]) as peers:
        answer = await peers.chat(stream=stream, speculation="dflash")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()["error"]
    assert (told["code"], told["param"]) == (code, param)
    assert "secret" not in answer.text
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
    assert len(peers.target.calls) == 1


async def test_openais_client_raises_its_own_errors(gateway):
    async with gateway(lambda request: [Overloaded("the queue is full")]) as peers:
        with pytest.raises(openai.RateLimitError):
            await peers.openai.chat.completions.create(**BODY)
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await peers.openai.chat.completions.create(**BODY, temperature=3)
        with pytest.raises(openai.NotFoundError, match="other"):
            await peers.openai.chat.completions.create(**BODY | {"model": "other"})


@pytest.mark.parametrize(
    ("error", "code"),
    [(ZeroDivisionError("secret"), "internal_error"), (Unavailable("draining"), "service_unavailable")],
)
async def test_an_error_after_the_first_token_is_the_last_frame(gateway, error, code):
    async with gateway(lambda request: [says("a"), says("b"), error]) as peers:
        response = await peers.chat(stream=True)
        assert response.status_code == 200
        *chunks, last = frames(response)
        whole = await peers.chat()
        assert (await peers.chat(n=2)).status_code == whole.status_code
    assert len(chunks) == 2
    assert set(last) == {"error"}
    assert last["error"]["code"] == code
    assert "secret" not in response.text
    assert whole.json()["error"]["code"] == code
    assert len(peers.target.calls) == 4, "nothing is asked twice once a token has come"


async def test_one_choice_that_fails_ends_the_others(gateway):
    never, all_here, here = asyncio.Event(), asyncio.Event(), set[int]()

    def script(request):
        here.add(request.choice)
        if len(here) == 3:
            all_here.set()
        return [says("a"), all_here, ZeroDivisionError()] if request.choice == 1 else [says("a"), never]

    async with gateway(script) as peers:
        *_, last = frames(await peers.chat(stream=True, n=3))
        assert last["error"]["code"] == "internal_error"
        for call in peers.target.calls:
            await call.ended.wait()
    assert sorted(call.outcome for call in peers.target.calls) == ["cancelled", "cancelled", "failed"]


async def test_a_sequence_that_ends_without_a_finish_is_an_error(gateway):
    async with gateway(lambda request: [says("a")]) as peers:
        assert (await peers.chat()).status_code == 500
        *_, last = frames(await peers.chat(stream=True))
    assert last["error"]["code"] == "internal_error"


async def test_unavailable_before_the_first_token_is_asked_once_more(gateway):
    answers = [[Unavailable("restarting")], [ends("there")]]
    async with gateway(lambda request: answers.pop(0)) as peers:
        answer = await peers.chat()
    assert answer.json()["choices"][0]["message"]["content"] == "there"
    first, second = (call.request for call in peers.target.calls)
    assert first == second


@pytest.mark.parametrize("stream", [False, True])
async def test_unavailable_twice_is_503_with_a_hint(gateway, stream):
    async with gateway(lambda request: [Unavailable("loading", retry_after_s=3)]) as peers:
        answer = await peers.chat(stream=stream)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert answer.json()["error"]["code"] == "service_unavailable"
    assert len(peers.target.calls) == 2


async def test_a_target_that_restarted_between_requests_costs_nothing(gateway):
    async with gateway(own=True) as peers:
        assert (await peers.chat()).status_code == 200
        address = peers.target_server.address
        await peers.stop_target()
        reborn = ScriptedTarget(lambda request: [ends("back")])
        async with serving(address, [target_service(reborn)], grace_s=0) as server:
            await server.ready()
            answer = await peers.chat()
            assert answer.json()["choices"][0]["message"]["content"] == "back"
            assert len(reborn.calls) == 1


async def test_a_target_that_is_gone_is_503(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.targets.CONNECT_S", 0.1)
    async with gateway(own=True) as peers:
        await peers.stop_target()
        await peers.until(ready=False)
        assert (await peers.chat()).status_code == 503
        assert (await peers.http.get("/ready")).status_code == 503
        assert (await peers.http.get("/live")).status_code == 200


async def test_another_tokenizer_is_fetched_and_the_prompt_encoded_again(gateway):
    async with gateway(own=True) as peers:
        peers.target.files = byte_files(template="{{ messages[0].content }}")
        assert (await peers.chat()).status_code == 200
        assert (await peers.chat()).status_code == 200
    refused, *served = peers.target.calls
    assert refused.request.tokenizer_hash == FILES.hash
    assert [call.request.tokenizer_hash for call in served] == [peers.target.files.hash] * 2
    assert bytes(id - 3 for id in served[0].request.prompt_ids)
    assert len(served[0].request.prompt_ids) == 2
    assert peers.target.fetched == [FILES, peers.target.files]


async def test_many_who_ask_at_once_what_is_served_ask_once():
    target = ScriptedTarget(lambda request: [])
    async with serving("127.0.0.1:0", [target_service(target)], grace_s=0) as server:
        await server.ready()
        async with target_channel(server.address) as channel:
            asked = Target(channel)
            served = await asyncio.gather(*(asked.served() for _ in range(8)))
            assert all(each is served[0] for each in served)
            assert (target.described, target.fetched) == (1, [FILES])
            again = await asked.refresh()
            assert again.tokenizer is served[0].tokenizer
            assert (target.described, target.fetched) == (2, [FILES])


async def test_a_target_that_never_agrees_about_its_tokenizer_is_unavailable(gateway):
    async with gateway(own=True) as peers:
        peers.target.hash_of_calls = "never"
        answer = await peers.chat()
    assert answer.status_code == 503


async def test_a_round_that_no_target_would_send_is_an_internal_error(gateway):
    bad = Round(ids=[5], finish=TargetServiceGenerateResponse().finish)
    async with gateway(lambda request: [bad]) as peers:
        assert (await peers.chat()).status_code == 500


async def test_the_deadline_of_a_request_reaches_the_target(gateway):
    never = asyncio.Event()
    async with gateway(lambda request: [never], request_timeout_s=0.2) as peers:
        assert (await peers.chat()).status_code == 504
        (call,) = peers.target.calls
        assert 0 < call.time_remaining < 1
        await call.ended.wait()
        peers.target.script = lambda request: [says("a"), never]
        *_, last = frames(await peers.chat(stream=True))
        assert last["error"]["code"] == "deadline_exceeded"
        peers.target.script = lambda request: [ends()]
        assert (await peers.chat()).status_code == 200


async def test_a_grpc_deadline_reaches_the_target(gateway):
    never = asyncio.Event()
    async with gateway(lambda request: [never]) as peers:
        with pytest.raises(DeadlineExceeded), raising():
            await peers.stub.Generate(pb.GenerateRequest(text="hi"), timeout=0.2).read()
        (call,) = peers.target.calls
        assert 0 < call.time_remaining < 1
        await call.ended.wait()


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("the queue is full", retry_after_s=1.5),
        Unsupported("dflash cannot run", field="speculation.mode"),
        InvalidRequest("must be better", field="sampling.temperature"),
        Internal("internal error"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_the_grpc_face_passes_errors_on_as_they_are(gateway, error):
    async with gateway(lambda request: [error]) as peers:
        with pytest.raises(TandemError) as caught, raising():
            await peers.stub.Generate(pb.GenerateRequest(text="hi")).read()
    assert type(caught.value) is type(error)
    assert getattr(caught.value, "field", None) == getattr(error, "field", None)
    assert getattr(caught.value, "retry_after_s", None) == getattr(error, "retry_after_s", None)


async def test_a_message_over_the_limit_is_resource_exhausted(gateway):
    async with gateway() as peers:
        call = peers.stub.Generate(pb.GenerateRequest(text="x" * (33 * 2**20)))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert json.dumps(caught.value.details())
        assert (await peers.chat()).status_code == 200
