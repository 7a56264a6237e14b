"""Where the time of a round goes. `python -m bench.rounds --json`.

The embedded model, bf16, one stream of 96 greedy tokens on a prompt whose answer repeats, mode ngram, the drafter in a
process of its own. Medians over the rounds that verified a draft, in milliseconds:

draft   what the drafter says it computed
hop     the rest of the wait for its answer: encode, two messages, two event loops
verify  the forward over the block
sample  sample and match
settle  the rest of the step: cut, commit, counters, the hand-off to the model's thread and back
emit    a round's update as bytes of a message
round   from one emission to the next
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict

os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # before torch is imported
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import torch
from tandem.v1.drafter_pb2 import Hello

from services.config.folders import cache_root
from services.engine import sampling
from services.engine.engine import Engine
from services.shipped.prepare import prepare
from services.target import encode, step
from services.target.background import background
from services.target.encode import Exactness
from services.target.link import stream
from services.target.link.link import DrafterLink, Patience
from services.target.request import Request, Speculation
from services.target.rounds import Rounds
from services.target.scheduler import Bounds
from services.target.sink import Update
from services.target.taps.region import PAGE_BYTES
from services.target.taps.taps import Taps
from services.target.worker import Worker
from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.wire.codec import DRAFT_PROTOCOL_VERSION

PROMPT = "Write the word hello thirty times."
TOKENS, REPEATS = 96, 3


def timed(times: dict[str, list[float]], name: str, call):
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            times[name].append(time.perf_counter() - start)

    return wrapper


def _bytes(update: Update, exactness: Exactness) -> bytes:
    return encode.update(update, exactness).SerializeToString()


async def measure(address: str) -> dict[str, float]:
    folder = prepare(cache=cache_root())
    files = TokenizerFiles.read(folder)
    tokenizer = Tokenizer(files)
    engine = Engine.load(folder, dtype=torch.bfloat16, cache_rows=4096, vocab_size=tokenizer.vocab_size)
    prompt = ChatTemplate.of(files).encode(tokenizer, [{"role": "user", "content": PROMPT}])
    params = sampling.SamplingParams(temperature=0.0, seed=0, logit_bias={}, banned=frozenset())
    asked = Request(
        id="bench",
        prompt=prompt,
        max_new=TOKENS,
        open_ended=False,
        sampling=params,
        speculation=Speculation(mode="ngram"),
    )
    times: dict[str, list[float]] = defaultdict(list)
    engine.forward = timed(times, "verify", engine.forward)
    step.sample_and_match = timed(times, "sample", step.sample_and_match)
    answer = stream.Stream._answer

    def elapsed(self, proposals):
        times["draft"].append(proposals.elapsed.ToNanoseconds() / 1e9)
        return answer(self, proposals)

    stream.Stream._answer = elapsed
    worker = Worker()
    run, exactness = worker.run, Exactness(True, None, "bench")
    async with background() as start:
        hello = Hello(protocol_version=DRAFT_PROTOCOL_VERSION, vocab_size=engine.vocab_size, hidden_size=1)
        taps = Taps(size=PAGE_BYTES, hidden_size=engine.hidden_size, dtype=engine.dtype)
        link = DrafterLink(address, hello, Patience(first_s=5, most_s=5, misses=9, rest_s=1), taps)
        draft = link.draft

        async def timed_draft(asks):
            begun = time.perf_counter()
            drafts = await draft(asks)
            times["wait"].append(time.perf_counter() - begun)
            return drafts

        async def timed_run(call):
            begun = time.perf_counter()
            done = await run(call)
            times["step"].append(time.perf_counter() - begun)
            return done

        link.draft, worker.run = timed_draft, timed_run
        rounds = Rounds(
            engine, tokenizer, link, worker, Bounds(max_sequences=1, max_waiting=1, prefill_chunk=64, round_tokens=64)
        )
        start(link.run())
        start(rounds.run())
        await link.up.wait()
        kept: dict[str, list[float]] = defaultdict(list)
        for _ in range(REPEATS + 1):
            last = None
            async for update in rounds.generate(asked):
                now = time.perf_counter()
                timed(times, "emit", _bytes)(update, exactness)
                if last is not None and len(update.kept) > 1:
                    kept["round"].append(now - last)
                    for name in ("draft", "verify", "sample", "emit", "wait", "step"):
                        kept[name].append(times[name][-1])
                last = now
    worker.close()
    middle = {name: statistics.median(values[len(values) // (REPEATS + 1) :]) * 1e3 for name, values in kept.items()}
    return {
        "draft": middle["draft"],
        "hop": middle["wait"] - middle["draft"],
        "verify": middle["verify"],
        "sample": middle["sample"],
        "settle": middle["step"] - middle["verify"] - middle["sample"],
        "emit": middle["emit"],
        "round": middle["round"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    as_json = parser.parse_args().json
    command = [sys.executable, "-m", "services.cli", "drafter", "--listen=127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as drafter:
        try:
            result = asyncio.run(measure(json.loads(drafter.stdout.readline())["address"]))
        finally:
            drafter.terminate()
    print(json.dumps(result, indent=1) if as_json else "\n".join(f"{k:<7}{v:8.3f} ms" for k, v in result.items()))


if __name__ == "__main__":
    main()
