"""What feeding taps to a drafter costs, in messages and through shared memory. `python -m bench.taps --json`.

Target and drafter are two processes, with the real store, link, wire and session; the model is missing, and the drafter
copies each tap into memory of its own, as one that computes elsewhere does. bf16, five taps of each position.

round_us     from the taps of a forward to the answer of the turn that carries them: 4 kept positions of each sequence
             are written, fed, read, and nothing is proposed. `without` is the same turn with ids only.
prefill_ms   8192 positions in chunks of 512, until all that does not wait for a turn is acknowledged
bytes        of taps that are fed
ratio        shared / in messages, in the order ABBA: median over repeats, and its 95 % interval by bootstrap

Copies of a tap on its way, by construction: shared, one (into the slot). In messages, six: into the slot, out of it, by
the encoder, into and out of the transport's buffers, and by the decoder.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import torch
from tandem.v1.drafter_pb2 import Hello

from bench.pairs import Samples, means, ratio
from services.drafter.drafting import Drafting
from services.drafter.interface import Description, Draft
from services.drafter.servicer import DrafterServicer
from services.engine.batch import Forward
from services.engine.sampling import SamplingParams
from services.target.background import background
from services.target.link.link import DraftAsk, DrafterLink, Patience
from services.target.link.stream import BLOCK_POSITIONS
from services.target.request import Request, Speculation
from services.target.sequence import Sequence
from services.target.taps.sharing import Sharing
from services.target.taps.taps import Taps
from services.target.worker import Worker
from services.wire.codec import DATA_TYPES, DRAFT_PROTOCOL_VERSION
from services.wire.ring import USUAL_FOLDER
from services.wire.serving import drafter_service, serving

SIZES = {"8B": 4096, "27B": 5120}
LAYERS = (2, 9, 16, 23, 30)
KEPT, PREFILL, CHUNK, VOCAB = 4, 8192, 512, 1000
ROUNDS = 20
PATIENCE = Patience(first_s=60, most_s=60, misses=9, rest_s=1)


class Copying:
    """Keeps nothing but the last feed's taps. Mode ngram needs none."""

    def __init__(self, mode: str, tap_layers: tuple[int, ...] = ()) -> None:
        self.description = Description(
            mode=mode, name=mode, max_draft_tokens=8, default_draft_tokens=8, tap_layers=tap_layers
        )
        self._memory = bytearray(64 << 20)

    def open(self, opening):
        return SimpleNamespace(fed=0)

    def absorb(self, context, feed):
        context.fed = feed.end
        if feed.taps is not None:
            self._memory[: len(feed.taps.data)] = feed.taps.data

    def draft(self, asks):
        return [Draft() for _ in asks]

    def close(self, context):
        pass


async def drafter(folder: Path | None) -> None:
    with Drafting.of([Copying("ngram"), Copying("dflash", LAYERS)], max_contexts=64) as drafting:
        service = drafter_service(DrafterServicer(drafting, folder))
        async with serving("127.0.0.1:0", [service], grace_s=0) as server:
            await server.ready()
            print(server.address, flush=True)
            await asyncio.Event().wait()


class Way:
    """One target with one drafter process: sequences whose forwards are noise."""

    def __init__(self, hidden_size: int, link: DrafterLink, mode: str) -> None:
        self.link, self.mode = link, mode
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(CHUNK, hidden_size, generator=generator).to(torch.bfloat16)
        self._forward = Forward(logits_RV=rows, taps=dict.fromkeys(LAYERS, rows), hidden_TH=None)
        self._ids = 0
        self._moved = asyncio.Event()
        contexts = link._stream.contexts
        confirm = contexts.confirm

        def confirming(*args):
            confirm(*args)
            self._moved.set()

        contexts.confirm = confirming

    def sequences(self, count: int) -> list[Sequence]:
        return [self._sequence() for _ in range(count)]

    def _sequence(self) -> Sequence:
        self._ids += 1
        params = SamplingParams(temperature=0.0, seed=0, logit_bias={}, banned=frozenset())
        request = Request(
            id="bench",
            prompt=[1] * PREFILL,
            max_new=PREFILL,
            open_ended=False,
            sampling=params,
            speculation=Speculation(mode=self.mode),
        )
        slot = SimpleNamespace(length=0)
        sequence = Sequence(self._ids, request, [1] * (2 * PREFILL), None, None, None, slot)
        sequence.taps = self.link.retain(sequence)
        return sequence

    def _commit(self, sequence: Sequence, count: int) -> None:
        if sequence.taps is not None:
            self.link.taps.reserve(sequence.taps, count)
            self.link.taps.write(sequence.taps, self._forward, 0, count)
        sequence.slot.length += count

    async def round(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._commit(sequence, KEPT)
        await self.link.draft([DraftAsk(sequence, self.mode, 8) for sequence in sequences])

    async def prefill(self, sequence: Sequence) -> None:
        while sequence.frontier < PREFILL:
            self._commit(sequence, CHUNK)
            self.link.sync(sequence)
            await asyncio.sleep(0)  # the next chunk is computed meanwhile
        # A turn carries the last positions.
        while self.link._stream.contexts[sequence.id].confirmed < PREFILL - BLOCK_POSITIONS:
            self._moved.clear()
            self.link.sync(sequence)
            await self._moved.wait()

    def end(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self.link.close(sequence.id)
            if sequence.taps is not None:
                self.link.taps.drop(sequence.taps)

    async def time_rounds(self, count: int) -> float:
        sequences = self.sequences(count)
        for _ in range(3):
            await self.round(sequences)
        begun = time.perf_counter()
        for _ in range(ROUNDS):
            await self.round(sequences)
        took = time.perf_counter() - begun
        self.end(sequences)
        return took / ROUNDS

    async def time_prefill(self) -> float:
        [sequence] = self.sequences(1)
        begun = time.perf_counter()
        await self.prefill(sequence)
        took = time.perf_counter() - begun
        self.end([sequence])
        return took


async def compare(ways: dict[str, Way], measure, repeats: int) -> dict[str, object]:
    """`repeats` times shared, messages, messages, shared, after one of each to warm up."""
    shared, messages = ways["shared"], ways["messages"]
    for way in (shared, messages):
        await measure(way)
    samples: Samples[float] = {"shared": [], "messages": []}
    for _ in range(repeats):
        first, second, third, fourth = [await measure(way) for way in (shared, messages, messages, shared)]
        samples["shared"].append((first, fourth))
        samples["messages"].append((second, third))
    times = {name: means(pairs, float) for name, pairs in samples.items()}
    found = ratio(times["shared"], times["messages"])
    return {
        **{name: statistics.median(values) for name, values in times.items()},
        "ratio": [found.median, found.low, found.high],
    }


@contextmanager
def child(folder: Path | None) -> Iterator[str]:
    """A drafter process, by its address."""
    command = [sys.executable, "-m", "bench.taps", f"--drafter={folder or 'none'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


async def measure(hidden_size: int, repeats: int) -> dict[str, object]:
    row = len(LAYERS) * hidden_size * 2
    size = (PREFILL * row >> 20) + 64 << 20
    async with AsyncExitStack() as stack:
        start = await stack.enter_async_context(background())
        children = stack.enter_context(ExitStack())
        ways: dict[str, Way] = {}
        for name, folder, mode in (
            ("shared", USUAL_FOLDER, "dflash"),
            ("messages", None, "dflash"),
            ("without", None, "ngram"),
        ):
            address = children.enter_context(child(folder))
            worker = Worker()
            children.callback(worker.close)
            taps = Taps(size=size, hidden_size=hidden_size, dtype=torch.bfloat16)
            hello = Hello(
                protocol_version=DRAFT_PROTOCOL_VERSION,
                vocab_size=VOCAB,
                hidden_size=hidden_size,
                layers=LAYERS[-1] + 1,
                dtype=DATA_TYPES.value("bf16"),
            )
            link = DrafterLink(address, hello, PATIENCE, taps, Sharing(taps, worker, folder))
            link._deadline.least_s = PATIENCE.most_s  # a round that is not waited for says nothing
            start(link.run())
            await link.up.wait()
            ways[name] = Way(hidden_size, link, mode)
        result: dict[str, object] = {}
        for count in (1, 16):
            done = await compare(ways, lambda way, count=count: way.time_rounds(count), repeats)
            without = statistics.median([await ways["without"].time_rounds(count) for _ in range(repeats)])
            result[f"round of {count}"] = {
                "bytes": count * KEPT * row,
                "shared_us": done["shared"] * 1e6,
                "messages_us": done["messages"] * 1e6,
                "without_us": without * 1e6,
                "ratio": done["ratio"],
            }
        done = await compare(ways, Way.time_prefill, repeats)
        without = statistics.median([await ways["without"].time_prefill() for _ in range(repeats)])
        result["prefill"] = {
            "bytes": PREFILL * row,
            "shared_ms": done["shared"] * 1e3,
            "messages_ms": done["messages"] * 1e3,
            "without_ms": without * 1e3,
            "ratio": done["ratio"],
        }
        return result


async def measure_all(repeats: int) -> dict[str, object]:
    return {name: await measure(hidden_size, repeats) for name, hidden_size in SIZES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--repeats", type=int, default=7, help="of each comparison, in the order ABBA")
    parser.add_argument("--drafter", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drafter is not None:
        asyncio.run(drafter(None if asked.drafter == "none" else Path(asked.drafter)))
        return
    results = asyncio.run(measure_all(asked.repeats))
    if asked.json:
        print(json.dumps(results, indent=1))
        return
    for model, measured in results.items():
        for what, values in measured.items():
            median, low, high = values.pop("ratio")
            line = "  ".join(f"{name} {value:.0f}" for name, value in values.items())
            print(f"{model:<4} {what:<12} {line}  ratio {median:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
