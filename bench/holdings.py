"""What the programs of a running system hold: memory, descriptors, threads, rows and contexts."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from tandem.v1.generation_pb2 import DescribeRequest
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from services.wire.clients import gateway_channel

LOOK_S = 0.2
SETTLE_S = 60


@dataclass(frozen=True, slots=True)
class Process:
    """`memory_kib` is what it allocated, and not the files that it maps."""

    pid: int
    memory_kib: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Busy:
    """What requests hold; all zero where nobody asks."""

    answering: int
    running: int
    waiting: int
    rows: int
    contexts: int


@dataclass(frozen=True, slots=True)
class Holdings:
    processes: Mapping[str, Process]
    busy: Busy


def process(pid: int) -> Process:
    folder = Path(f"/proc/{pid}")
    status = dict(re.findall(r"^(\w+):\s+(\d+)", (folder / "status").read_text(), re.MULTILINE))
    descriptors = len(list((folder / "fd").iterdir()))
    return Process(pid, int(status["RssAnon"]), descriptors, int(status["Threads"]))


async def settled(pids: Mapping[str, int], url: str, grpc_address: str) -> Holdings:
    """Once nobody is answered any more and nothing has changed between two looks, or after a minute, as it is then."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http, gateway_channel(grpc_address) as channel:
        stub, before = GenerationServiceStub(channel), None
        for _ in range(round(SETTLE_S / LOOK_S)):
            load = (await stub.Describe(DescribeRequest())).target.load
            answering = re.search(
                r"^tandem_gateway_num_requests (\S+)$", (await http.get("/metrics")).text, re.MULTILINE
            )
            assert answering is not None, "/metrics tells it"
            busy = Busy(
                int(float(answering[1])), load.running, load.waiting, load.cache_rows - load.free_rows, load.contexts
            )
            now = Holdings({role: process(pid) for role, pid in pids.items()}, busy)
            if not any(asdict(busy).values()) and _held(now) == _held(before):
                break
            before = now
            await asyncio.sleep(LOOK_S)
    return now


def _held(holdings: Holdings | None) -> object:
    return holdings and [(each.descriptors, each.threads) for each in holdings.processes.values()]
