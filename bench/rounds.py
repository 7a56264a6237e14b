"""Where the time of a round goes. One stream of greedy tokens whose answer repeats, mode `none` and every drafter that
is loaded; gateway, target and drafter in processes of their own, with a stop-watch in the target. Medians in
milliseconds, of drafters over the rounds that verified a draft:

draft    what the drafter says it computed
hop      the rest of the wait for its answer: encode, two messages, two event loops
verify   the forward over the block
sample   sample and match
settle   the rest of the step: cut, commit, counters, the hand-off to the model's thread and back
other    the rest of the round: decisions, bookkeeping, the event loop's other work, such as `emit`
round    from one emission to the next
emit     a round's update as a message; while it is made the next round has begun
outside  from the emission in the target to the arrival at the client: `emit`, two gRPC streams and the gateway. It lies
         beside the next round, so it delays tokens but lengthens a round only by the processor time that it takes away
client   from one message to the next at the client
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path

import grpc
from tandem.v1.generation_pb2 import DescribeRequest
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from bench.client import TIMEOUT_S, Answer, ask, asking, fingerprint
from bench.command import Options, Result, main
from bench.decode.system import drafter_settings
from bench.machine import openmp
from bench.profiled import Event
from bench.texts import chats
from services.supervisor.serve import command
from services.wire.codec import MODES
from services.wire.limits import CLIENT_OPTIONS

PROMPT = "Write the word hello thirty times."
PARTS = ("draft", "hop", "verify", "sample", "settle", "other")
WHOLE = ("round", "emit", "outside", "client")
READY_S = 120


def measure(options: Options) -> Result:
    tokens = 16 if options.quick else 96
    prompt = chats(options.model)(PROMPT)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.json"
        with ExitStack() as programs:
            flags = {"listen": "127.0.0.1:0"} | drafter_settings(options.model, {})
            drafter = programs.enter_context(program(command("drafter", flags), "drafter", openmp(options.threads)))
            flags = {"listen": "127.0.0.1:0", "drafter": drafter, "model": str(options.model)}
            flags["threads"] = str(options.threads)
            watched = [sys.executable, "-m", "bench.profiled", str(file), *command("target", flags)[3:]]
            target = programs.enter_context(program(watched, "target", openmp(options.threads)))
            flags = {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0", "target": target}
            gateway = programs.enter_context(program(command("gateway", flags), "grpc"))
            channel = programs.enter_context(grpc.insecure_channel(gateway, options=CLIENT_OPTIONS))
            stub = GenerationServiceStub(channel)
            numerics = ready(stub)
            answers = {
                mode: [ask(stub, asking(prompt, tokens, mode=mode)) for _ in range(options.repeats + 1)][1:]
                for mode in ("none", *loaded(stub))
            }
        events = [Event(*each) for each in json.loads(file.read_text())]
    profiles = {mode: profile(events, answers[mode], drafting=mode != "none") for mode in answers}
    return Result(
        rows=[*(row(name, profiles) for name in (*PARTS, *WHOLE)), share("hop", profiles)],
        samples=profiles,
        settings={"tokens": tokens, "numerics": numerics},
    )


@contextmanager
def program(words: list[str], role: str, environment: Mapping[str, str] = {}) -> Iterator[str]:
    """Run it, and give the address that it announces for `role`."""
    environment = {**os.environ, **environment}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as run:
        try:
            lines = map(json.loads, run.stdout)
            yield next(line["address"] for line in lines if line["role"] == role)
        finally:
            run.terminate()


def ready(stub: GenerationServiceStub) -> str:
    """Wait until the target has loaded and knows its drafter."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            name = fingerprint(stub)
            ask(stub, asking([1, 2], 1, mode="ngram"))  # refused while the drafter is not there: it is strict
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return name


def loaded(stub: GenerationServiceStub) -> list[str]:
    """Modes of the drafters, which are there."""
    return [MODES.name(each.mode) for each in stub.Describe(DescribeRequest(), timeout=TIMEOUT_S).target.drafters]


def profile(events: list[Event], answers: list[Answer], *, drafting: bool) -> dict[str, float]:
    """Medians in ms over all rounds of `answers` after the first, which prefills."""
    rounds = [each for answer in answers for each in rounds_of(events, answer, drafting)]
    if not rounds:
        raise SystemExit(f"no round {'verified a draft' if drafting else 'ran'}: there is nothing to report")
    return {name: 1e3 * statistics.median(each[name] for each in rounds) for name in (*PARTS, *WHOLE)}


def rounds_of(events: list[Event], answer: Answer, drafting: bool) -> Iterator[dict[str, float]]:
    """The rounds of one answer whose message was not merged with another, with the seconds of each part."""
    arrived = {
        tokens: answer.sent + at for tokens, at in zip(accumulate(answer.counts), answer.arrivals_s, strict=True)
    }
    parts: dict[str, Event] = {}
    begin, tokens = 0.0, 0
    for event in events:
        if not answer.sent < event.at < answer.sent + answer.total_s:
            continue
        if event.name != "put":
            parts[event.name] = event
            continue
        last, tokens = tokens, tokens + event.count
        if last in arrived and tokens in arrived and (parts["verify"].count > 1 or not drafting):
            yield split(parts, event.at - begin) | {
                "outside": arrived[tokens] - event.at,
                "client": arrived[tokens] - arrived[last],
            }
        begin, parts = event.at, {}


def split(parts: Mapping[str, Event], whole: float) -> dict[str, float]:
    """The seconds of a round by what they went to; `emit` is that of the round before, and no part of it."""
    spent = {name: event.seconds for name, event in parts.items()}
    draft, wait = spent.get("draft", 0.0), spent.get("wait", 0.0)
    return {
        "draft": draft,
        "hop": wait - draft,
        "verify": spent["verify"],
        "sample": spent["sample"],
        "settle": spent["step"] - spent["verify"] - spent["sample"],
        "other": whole - wait - spent["step"],
        "round": whole,
        "emit": spent["emit"],
    }


def row(name: str, profiles: Mapping[str, Mapping[str, float]]) -> dict[str, object]:
    return {"part": name} | {f"{mode} ms": profile[name] for mode, profile in profiles.items()}


def share(name: str, profiles: Mapping[str, Mapping[str, float]]) -> dict[str, object]:
    """The part in percent of the round."""
    shares = {f"{mode} ms": 100 * profile[name] / profile["round"] for mode, profile in profiles.items()}
    return {"part": f"{name}, % of the round"} | shares


if __name__ == "__main__":
    main("rounds", __doc__, measure)
