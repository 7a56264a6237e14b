"""The gateway as its program composes it, before a scripted target: both ports open, every hop a real socket."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anthropic
import grpc
import httpx
import httpx2
import openai
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from services.config import GatewaySettings
from services.gateway.process import open_gateway
from services.wire.clients import gateway_channel
from services.wire.serving import Server, serving, target_service
from tests.gateway.scripted_target import ScriptedTarget


@dataclass
class Peers:
    """A running gateway, its target, and a client of every kind."""

    target: ScriptedTarget
    target_server: Server
    http: httpx.AsyncClient
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    channel: grpc.aio.Channel
    stop_target: Callable
    stop: Callable

    @property
    def stub(self) -> GenerationServiceStub:
        return GenerationServiceStub(self.channel)

    async def chat(self, **fields) -> httpx.Response:
        return await self.http.post("/v1/chat/completions", json=BODY | fields)

    async def complete(self, **fields) -> httpx.Response:
        return await self.http.post("/v1/completions", json=PROMPT | fields)

    async def messages(self, **fields) -> httpx.Response:
        return await self.http.post("/v1/messages", json=MESSAGES | fields)

    async def raw(self, body: bytes, *, path: str = "/v1/chat/completions", **headers) -> httpx.Response:
        return await self.http.post(path, content=body, headers={"Content-Type": "application/json"} | headers)

    async def until(self, ready: bool) -> None:
        await until(self.channel, ready)


BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PROMPT = {"model": "tiny", "prompt": "hi"}
MESSAGES = BODY | {"max_tokens": 50}


async def until(channel, ready: bool) -> None:
    """Wait until the gateway's health says so."""
    wanted = HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
    watch = HealthStub(channel).Watch(HealthCheckRequest(service="tandem.v1.GenerationService"))
    async for update in watch:
        if update.status == wanted:
            watch.cancel()
            return


@asynccontextmanager
async def running(target: ScriptedTarget, *, loading: bool = False, **settings) -> AsyncIterator[Peers]:
    """Ready, unless the target is `loading`."""
    async with AsyncExitStack() as clients, AsyncExitStack() as targets, AsyncExitStack() as gateways:
        target_server = await targets.enter_async_context(serving("127.0.0.1:0", [target_service(target)], grace_s=0))
        if not loading:
            await target_server.ready()
        values = {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0", "target": target_server.address} | settings
        addresses = await gateways.enter_async_context(open_gateway(GatewaySettings(**values)))
        channel = await clients.enter_async_context(gateway_channel(addresses.grpc))
        if not loading:
            await until(channel, True)
        url = f"http://{addresses.http}"
        http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60)
        client = openai.AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            max_retries=0,
            http_client=httpx2.AsyncClient(trust_env=False, timeout=60),
            _strict_response_validation=True,
        )
        other = anthropic.AsyncAnthropic(
            base_url=url,
            api_key="none",
            max_retries=0,
            http_client=httpx2.AsyncClient(trust_env=False, timeout=60),
            _strict_response_validation=True,
        )
        async with http, client, other:
            yield Peers(target, target_server, http, client, other, channel, targets.aclose, gateways.aclose)


def events(response: httpx.Response) -> list[dict]:
    """Events of a stream that was read to its end; each is named like the type it says."""
    blocks = [block.splitlines() for block in response.text.replace("\r\n", "\n").strip().split("\n\n")]
    values = []
    for name, data in blocks:
        values.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {values[-1]['type']}"
    return values


def frames(response: httpx.Response) -> list[dict | str]:
    """Data frames of a stream that was read to its end; the end mark stays text."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
