"""The gateway program: opens its ports, follows the target's readiness, serves, drains."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector

from services.config import GatewaySettings
from services.gateway.app import PING_S, create_app
from services.gateway.generate import Generator
from services.gateway.http import http_serving
from services.gateway.metrics import Metrics
from services.gateway.rest.body import Limits
from services.gateway.servicer import Servicer
from services.gateway.targets import Target
from services.wire.clients import target_channel
from services.wire.serving import Server, announce, generation_service, serving, stop_requested


@dataclass(frozen=True, slots=True)
class Addresses:
    http: str
    grpc: str


async def run(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadConfig before anything is announced."""
    async with open_gateway(settings) as addresses:
        announce("grpc", addresses.grpc)
        announce("gateway", addresses.http)
        await stop_requested()


@asynccontextmanager
async def open_gateway(settings: GatewaySettings) -> AsyncIterator[Addresses]:
    """Serve while the body runs. Leaving drains: both ports stay open and refuse while running requests finish."""
    async with target_channel(settings.target) as channel:
        target = Target(channel)
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        metrics = Metrics(registry)
        generator = Generator(target, metrics, max_choices=settings.max_choices, timeout_s=settings.request_timeout_s)
        limits = Limits(settings.max_body_bytes, settings.upload_timeout_s)
        app = create_app(generator, limits=limits, ping_s=PING_S)
        services = [generation_service(Servicer(generator))]
        async with (
            serving(settings.grpc_listen, services, grace_s=settings.grace_s) as grpc_server,
            http_serving(settings.listen, app, upload_s=limits.upload_s) as http_address,
        ):
            async with _followed(target, by=grpc_server):
                yield Addresses(http=http_address, grpc=grpc_server.address)
            await grpc_server.draining()
            await generator.drain(settings.grace_s)


@asynccontextmanager
async def _followed(target: Target, *, by: Server) -> AsyncIterator[None]:
    """The server's health says whether the target is ready."""

    async def tell(ready: bool) -> None:
        await (by.ready() if ready else by.not_ready())

    watch = asyncio.create_task(target.watch(tell))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
