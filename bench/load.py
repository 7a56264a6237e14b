"""Many clients with random departures for a while, against real processes: does anything go wrong, or grow?

    python -m bench.load --seconds 600 --json

A third of the time is to warm up. Then, and at the end, all clients stop, and what the programs hold is compared: rows,
contexts and whatever else requests hold must be all given back, descriptors and threads be as many as before but for a
few, and memory as much but for a part that does not depend on the time.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.clients import Tally, client
from bench.holdings import Holdings, settled
from services.config.folders import cache_root
from services.shipped.prepare import prepare
from tests.system.running import Tandem, tandem

ROOMY = {"TANDEM_TARGET_QUEUE": "4096"}
"""A full queue is a right answer, and not what is looked for here: a client may ask for several choices at once."""

CLIENTS = 64
ROLES = ("gateway", "target", "drafter")
WARM_UP = 1 / 3
MORE_MEMORY, MORE_KIB = 0.1, 32 * 1024
"""Allocators keep what fragments; a leak is many times that over many thousands of requests."""
MORE_DESCRIPTORS, MORE_THREADS = 4, 4


@dataclass(frozen=True, slots=True)
class Result:
    """`warm` and `end`: what was held when nobody asked."""

    seconds: float
    tally: Tally
    warm: Holdings
    end: Holdings

    @property
    def complaints(self) -> list[str]:
        """What must not be; none where all is well."""
        said = [f"{count} times {error}" for error, count in self.tally.errors.items()]
        for when, holdings in (("warm-up", self.warm), ("end", self.end)):
            said += [
                f"{count} {what} are held after the {when}" for what, count in asdict(holdings.busy).items() if count
            ]
        for role, before in self.warm.processes.items():
            after = self.end.processes[role]
            if after.pid != before.pid:
                said.append(f"the {role} was started again")
            if after.memory_kib > before.memory_kib * (1 + MORE_MEMORY) + MORE_KIB:
                said.append(f"the {role} grew from {before.memory_kib} to {after.memory_kib} KiB")
            if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
                said.append(f"the {role} went from {before.descriptors} to {after.descriptors} descriptors")
            if after.threads > before.threads + MORE_THREADS:
                said.append(f"the {role} went from {before.threads} to {after.threads} threads")
        return said


async def run(running: Tandem, seconds: float, clients: int = CLIENTS) -> Result:
    """Load a running system for so long; two more waits until it has settled come on top."""
    tally, looked = Tally(), []
    look = partial(settled, url=running.url, grpc_address=running.grpc_address)
    for seed, share in enumerate((WARM_UP, 1 - WARM_UP)):
        await _crowd(running, tally, range(seed * clients, (seed + 1) * clients), seconds * share)
        gc.collect()  # a gRPC channel that was closed keeps its connection until it is gone
        looked.append(await look({role: running.child(role) for role in ROLES}))
    return Result(seconds, tally, *looked)


async def _crowd(running: Tandem, tally: Tally, seeds: Iterable[int], seconds: float) -> None:
    tasks = [asyncio.create_task(client(running, tally, seed)) for seed in seeds]
    await asyncio.wait(tasks, timeout=seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--model", type=Path, help="default: the embedded one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    began = time.time()
    with tandem(asked.model or prepare(cache=cache_root()), environment=ROOMY) as running:
        result = asyncio.run(run(running, asked.seconds, asked.clients))
    if asked.json:
        print(json.dumps({"took_s": time.time() - began, **asdict(result), "complaints": result.complaints}, indent=1))
    else:
        tally = result.tally
        print(f"{tally.finished} answers, {tally.left} left by their clients, {sum(tally.errors.values())} errors")
        print("\n".join(result.complaints) or "nothing went wrong, nothing grew")
    return 1 if result.complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
