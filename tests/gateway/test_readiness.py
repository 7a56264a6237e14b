"""What probes and lists say, while loading, serving and draining."""

import asyncio
from importlib.metadata import version

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tandem.v1 import generation_pb2 as pb

from services.config import GatewaySettings
from services.errors import BadConfig, Unavailable
from services.gateway.process import open_gateway
from services.wire.status import raising
from tests.gateway.peers import BODY, frames
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio


async def test_ready_means_that_a_generation_would_work(gateway):
    async with gateway(loading=True) as peers:
        assert (await peers.http.get("/live")).json() == {"status": "alive"}
        paths = ("/ready", "/health", "/v1/models")
        for answer in (*[await peers.http.get(path) for path in paths], await peers.chat()):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "service_unavailable"
        with pytest.raises(Unavailable), raising():
            await peers.stub.Generate(pb.GenerateRequest(text="hi")).read()
        await peers.target_server.ready()
        await peers.until(ready=True)
        for path in ("/ready", "/health"):
            assert (await peers.http.get(path)).json() == {"status": "ready"}
        assert (await peers.chat()).status_code == 200


async def test_the_version_is_that_of_the_package(gateway):
    async with gateway() as peers:
        assert (await peers.http.get("/version")).json() == {"version": version("tandem-serve")}


async def test_readiness_follows_the_target(gateway):
    async with gateway(own=True) as peers:
        await peers.target_server.draining()
        await peers.until(ready=False)
        assert (await peers.http.get("/ready")).status_code == 503
        assert (await peers.chat()).status_code == 503
        await peers.target_server.ready()
        await peers.until(ready=True)
        assert (await peers.http.get("/ready")).status_code == 200


async def test_the_models_list_says_how_they_may_be_speculated_for(gateway):
    async with gateway() as peers:
        listed = await peers.openai.models.list()
        (model,) = listed.data
        assert (await peers.http.get("/v1/models/tiny")).json() == model.model_dump(exclude={"shutdown_date"})
        missing = await peers.http.get("/v1/models/other/one")
    assert (model.id, model.object, model.owned_by) == ("tiny", "model", "tandem")
    assert model.context_length == 512
    assert (model.exact, model.inexact_reason, model.system_fingerprint) == (True, None, "fp-1")
    assert model.speculation["modes"] == ["auto", "none", "ngram"]
    assert model.speculation["drafters"][1] == {
        "mode": "mtp",
        "name": "mtp",
        "up": False,
        "refusal": "other weights",
        "max_draft_tokens": 0,
    }
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_leaving_finishes_what_runs_and_refuses_what_is_new(gateway):
    go_on = asyncio.Event()
    async with gateway(lambda request: [says("a"), go_on, ends("b")], grace_s=60) as peers:
        stream = await peers.openai.chat.completions.create(**BODY, stream=True)
        assert (await anext(aiter(stream))).choices[0].delta.content == "a"
        call = peers.stub.Generate(pb.GenerateRequest(text="hi"))
        assert (await call.read()).text == "a"
        watch = HealthStub(peers.channel).Watch(HealthCheckRequest(service="tandem.v1.GenerationService"))
        assert (await watch.read()).status == HealthCheckResponse.SERVING
        stopped = asyncio.create_task(peers.stop())
        assert (await watch.read()).status == HealthCheckResponse.NOT_SERVING
        for answer in (await peers.http.get("/ready"), await peers.chat()):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        with pytest.raises(Unavailable), raising():
            await peers.stub.Generate(pb.GenerateRequest(text="hi")).read()
        go_on.set()
        assert [chunk.choices[0].delta.content async for chunk in stream] == ["b", None]
        assert (await call.read()).text == "b"
        await stopped


async def test_what_outlives_the_grace_ends_with_an_error_and_not_with_a_cut(gateway):
    never = asyncio.Event()
    async with gateway(lambda request: [says("a"), never], grace_s=0.05) as peers:
        streamed = asyncio.create_task(peers.chat(stream=True))
        whole = asyncio.create_task(peers.chat())
        call = peers.stub.Generate(pb.GenerateRequest(text="hi"))
        await call.read()
        await peers.target.called(3)
        await peers.stop()
        *_, last = frames(await streamed)
        assert last["error"]["code"] == "service_unavailable"
        assert (await whole).status_code == 503
        with pytest.raises(Unavailable, match="shutting down"), raising():
            await call.read()
        for each in peers.target.calls:
            await each.ended.wait()


async def test_a_taken_port_is_a_bad_setting(gateway):
    async with gateway() as peers:
        url = peers.http.base_url
        taken = GatewaySettings(listen=f"{url.host}:{url.port}", grpc_listen="127.0.0.1:0", target="127.0.0.1:1")
        with pytest.raises(BadConfig, match=str(url.port)):
            async with open_gateway(taken):
                pass


async def test_a_client_that_waits_long_hears_that_the_server_lives(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    go_on = asyncio.Event()
    async with gateway(lambda request: [go_on, ends("late")], own=True) as peers:
        async with peers.http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith(": ping")
            go_on.set()
            rest = [line async for line in lines if line and not line.startswith(":")]
        assert all(line.startswith("data: ") for line in rest)
        assert rest[-1] == "data: [DONE]"
        peers.target.script = lambda request: [go_on, ends("late")]
        assert "ping" not in (await peers.chat()).text
