"""A gRPC server's life: it listens, says when it is ready, refuses while it is not, and drains.

    async with serving(listen, [drafter_service(servicer)], grace_s=5.0) as server:
        ...                                   # load; calls are UNAVAILABLE, health says NOT_SERVING
        await server.ready()
        announce("drafter", server.address)
        await stop_requested()
                                              # leaving drains: running calls have `grace_s` to finish

Health has "" for being alive and each service's full name for being ready. Servicers are async; a streaming method is
an async generator; they only raise: every method runs inside `reported`.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tandem.v1 import drafter_pb2_grpc, generation_pb2_grpc, target_pb2_grpc

from services.errors import BadConfig
from services.wire.gate import Gate
from services.wire.limits import SERVER_OPTIONS


@dataclass(frozen=True, slots=True)
class Registration:
    """One service of a server: its full name, and how it is added."""

    name: str
    add: Callable[[grpc.aio.Server], None]


def generation_service(servicer: generation_pb2_grpc.GenerationServiceServicer) -> Registration:
    add = generation_pb2_grpc.add_GenerationServiceServicer_to_server
    return Registration("tandem.v1.GenerationService", lambda server: add(servicer, server))


def target_service(servicer: target_pb2_grpc.TargetServiceServicer) -> Registration:
    add = target_pb2_grpc.add_TargetServiceServicer_to_server
    return Registration("tandem.v1.TargetService", lambda server: add(servicer, server))


def drafter_service(servicer: drafter_pb2_grpc.DrafterServiceServicer) -> Registration:
    add = drafter_pb2_grpc.add_DrafterServiceServicer_to_server
    return Registration("tandem.v1.DrafterService", lambda server: add(servicer, server))


class Server:
    """What a role sees of its server."""

    def __init__(
        self, address: str, gate: Gate, health_servicer: health.aio.HealthServicer, names: Sequence[str]
    ) -> None:
        self.address = address
        self.port = int(address.rpartition(":")[2])
        self._gate = gate
        self._health = health_servicer
        self._names = names

    async def ready(self) -> None:
        """From here on calls are served."""
        self._gate.refusal = None
        await self._say(health_pb2.HealthCheckResponse.SERVING)

    async def not_ready(self) -> None:
        """Health says so, for whoever chooses among servers. Calls still go through: a servicer that depends on a
        peer knows best what it can do without it."""
        await self._say(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def draining(self) -> None:
        """No new calls; running ones go on. Leaving `serving` does this too."""
        self._gate.refusal = "the service is shutting down"
        await self._say(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def _say(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for name in self._names:
            await self._health.set(name, status)


@asynccontextmanager
async def serving(listen: str, services: Sequence[Registration], *, grace_s: float) -> AsyncIterator[Server]:
    """Serve on `listen` (`host:port`, port 0 for any free one) while the body runs."""
    names = [service.name for service in services]
    gate = Gate(names)
    grpc_server = grpc.aio.server(interceptors=[gate], options=SERVER_OPTIONS)
    for service in services:
        service.add(grpc_server)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, grpc_server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], grpc_server)
    try:
        port = grpc_server.add_insecure_port(listen)
    except RuntimeError as error:
        raise BadConfig(f"listen: cannot listen on {listen}; it must be a free port of this machine") from error
    server = Server(f"{listen.rpartition(':')[0]}:{port}", gate, health_servicer, names)
    await server._say(health_pb2.HealthCheckResponse.NOT_SERVING)
    await grpc_server.start()
    try:
        yield server
        await server.draining()
        await gate.idle(grace_s)
    finally:
        await grpc_server.stop(None)
        await gate.idle(None)


def announce(role: str, address: str) -> None:
    """Tell whoever started this process where it listens: the only line on stdout."""
    print(json.dumps({"role": role, "address": address}), flush=True)


async def stop_requested() -> None:
    """Wait for SIGTERM or SIGINT. A second one ends the process at once, as if nobody listened."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
