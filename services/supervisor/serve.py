"""`tandem serve`: which three programs, with which flags, and what the user is told when they can answer."""

import asyncio
import json
import shlex
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.config import ServeSettings
from services.supervisor.backoff import Backoff
from services.supervisor.child import Addresses, Program
from services.supervisor.log import Log
from services.supervisor.supervisor import Supervisor

QUESTION = "What is the capital of Japan?"
"""Of the printed curl line. The model that ships is sure of each token of its answer: rounding, which differs between
processors, must not decide what somebody sees first."""

POLL_S = 0.2
STILL_LOADING_S = 10.0
# The environment's proxy is for the world outside.
_loopback = urllib.request.build_opener(urllib.request.ProxyHandler({}))


async def serve(
    settings: ServeSettings,
    *,
    target_flags: Mapping[str, str],
    drafter_flags: Mapping[str, str],
    config: Path | None,
) -> None:
    """Run the three programs until a signal. The flags of target and drafter are passed on as they are."""
    log = Log(sys.stderr)
    supervisor = Supervisor(
        programs(settings, target_flags=target_flags, drafter_flags=drafter_flags, config=config),
        log=log,
        backoff=lambda: Backoff(settings.restart_first_s, settings.restart_longest_s),
        grace_s=settings.grace_s,
    )

    async def greet(addresses: Addresses) -> None:
        url = f"http://{addresses['gateway']}"
        model = await _model_when_ready(url, log)
        print(greeting(url, addresses.get("grpc"), model), flush=True)

    await supervisor.run(greet)


def programs(
    settings: ServeSettings,
    *,
    target_flags: Mapping[str, str],
    drafter_flags: Mapping[str, str],
    config: Path | None,
) -> list[Program]:
    """In starting order. A program that comes back listens where its peers, or its clients, already look for it."""
    grpc_port = settings.grpc_port if settings.grpc_port is not None else settings.port and settings.port + 1
    common = {"config": str(config)} if config else {}

    def drafter(addresses: Addresses) -> Sequence[str]:
        own = {"listen": addresses.get("drafter", "127.0.0.1:0")}
        return command("drafter", common | dict(drafter_flags) | own)

    def target(addresses: Addresses) -> Sequence[str]:
        own = {"listen": addresses.get("target", "127.0.0.1:0"), "drafter": addresses["drafter"]}
        return command("target", common | dict(target_flags) | own)

    def gateway(addresses: Addresses) -> Sequence[str]:
        own = {
            "listen": addresses.get("gateway", f"127.0.0.1:{settings.port}"),
            "grpc_listen": addresses.get("grpc", f"127.0.0.1:{grpc_port}"),
            "target": addresses["target"],
        }
        return command("gateway", common | own)

    return [
        Program(role="drafter", command=drafter),
        Program(role="target", command=target, vital=True),
        Program(role="gateway", command=gateway),
    ]


def command(role: str, flags: Mapping[str, str]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "services.cli",
        role,
        *(f"--{name.replace('_', '-')}={value}" for name, value in flags.items()),
    ]


def greeting(url: str, grpc: str | None, model: str) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "stream": True,
    }
    curl = f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    return f"\n{model} is ready on {url}{f' and gRPC {grpc}' if grpc else ''}. Try:\n\n{curl}\n"


async def _model_when_ready(url: str, log: Log) -> str:
    loop = asyncio.get_running_loop()
    begun = told = loop.time()
    while (model := await asyncio.to_thread(_model_if_ready, url)) is None:
        if loop.time() - told >= STILL_LOADING_S:
            told = loop.time()
            log.line("tandem", f"still loading after {told - begun:.0f} s")
        await asyncio.sleep(POLL_S)
    return model


def _model_if_ready(url: str) -> str | None:
    try:
        with _loopback.open(f"{url}/ready", timeout=10), _loopback.open(f"{url}/v1/models", timeout=10) as response:
            return str(json.load(response)["data"][0]["id"])
    except OSError:  # refused, timed out, or a status that says not yet
        return None
