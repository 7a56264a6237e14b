"""The gateway as a program of its own."""

import asyncio
import json
import signal
import socket
import sys

import httpx
import pytest

from services.gateway.http import bound

pytestmark = pytest.mark.anyio


async def test_it_announces_both_ports_serves_probes_without_a_target_and_leaves_on_sigterm():
    flags = ["--target=127.0.0.1:9", "--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0"]
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "gateway", *flags, stdout=asyncio.subprocess.PIPE
    )
    grpc, http = [json.loads(await gateway.stdout.readline()) for _ in range(2)]
    assert (grpc["role"], http["role"]) == ("grpc", "gateway")
    async with httpx.AsyncClient(base_url=f"http://{http['address']}", trust_env=False, timeout=60) as client:
        assert (await client.get("/live")).status_code == 200
        assert (await client.get("/ready")).status_code == 503
    gateway.send_signal(signal.SIGTERM)
    rest, _ = await gateway.communicate()
    assert (rest, gateway.returncode) == (b"", 0)


async def test_connections_of_its_port_send_at_once():
    options = asyncio.get_running_loop().create_future()

    async def accept(reader, writer):
        accepted = writer.get_extra_info("socket")
        options.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accept, sock=bound("127.0.0.1:0")) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await options != 0
        writer.close()
        await writer.wait_closed()
