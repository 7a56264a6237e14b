"""`tandem-health` as a container runs it, against programs that are ready, not ready, and not there."""

import asyncio
import socket
import sys

import pytest
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer
from tandem.v1.target_pb2_grpc import TargetServiceServicer

from services.wire.serving import drafter_service, serving, target_service
from tests.gateway.peers import running
from tests.gateway.scripted_target import ScriptedTarget

pytestmark = pytest.mark.anyio
SERVICES = {"target": target_service(TargetServiceServicer()), "drafter": drafter_service(DrafterServiceServicer())}


async def health(*arguments):
    """The exit status; a refusal is one line on stderr, and stdout is never used."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.wire.health", *arguments, stdout=-1, stderr=-1
    )
    out, err = await program.communicate()
    assert out == b""
    assert program.returncode == 2 or err.count(b"\n") == program.returncode, err
    return program.returncode


@pytest.mark.parametrize("role", SERVICES)
async def test_a_program_that_loads_or_drains_is_alive_and_not_ready(role):
    async with serving("127.0.0.1:0", [SERVICES[role]], grace_s=5) as server:
        assert await health(role, server.address) == 1
        assert await health(role, server.address, "--alive") == 0
        await server.ready()
        assert await health(role, server.address) == 0
        await server.draining()
        assert await health(role, server.address) == 1
        assert await health(role, server.address, "--alive") == 0


async def test_one_program_is_not_taken_for_another():
    async with serving("127.0.0.1:0", [SERVICES["drafter"]], grace_s=5) as server:
        await server.ready()
        assert await health("target", server.address) == 1


async def test_a_gateway_is_ready_when_its_target_is():
    async with running(ScriptedTarget(lambda request: []), loading=True) as peers:
        address = f"{peers.http.base_url.host}:{peers.http.base_url.port}"
        assert await health("gateway", address) == 1
        assert await health("gateway", address, "--alive") == 0
        await peers.target_server.ready()
        await peers.until(True)
        assert await health("gateway", address) == 0


@pytest.mark.parametrize("role", ["gateway", *SERVICES])
async def test_nobody_at_the_address_is_not_health(role):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # and never listens
        assert await health(role, f"127.0.0.1:{reserved.getsockname()[1]}") == 1


async def test_what_is_no_address_is_refused():
    assert await health("target", "nowhere") == 2
    assert await health("target", "nowhere:http") == 2
    assert await health("supervisor", "127.0.0.1:1") == 2
