"""Who else decodes the same model: their names, what they need, and how they are asked."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.command import Options
from bench.machine import openmp

PACKAGES = {
    "transformers": "'transformers==5.24.0'",
    "dflash": "--no-deps dflash==0.1.0",
    "llama_cpp": "llama-cpp-python==0.3.36",
}
"""What pip installs them from."""
PROGRAMS = {"llama_cpp": "bench.decode.llama"}
"""Their processes, where it is not `bench.decode.peer`."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`like`: the mode of ours that does the same, with the same drafter if it needs one. `more`: what its process is
    told last."""

    kind: str
    package: str
    like: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """An answer, what it took, and in how many runs of the target after the one that read the prompt."""

    ids: tuple[int, ...]
    seconds: float
    rounds: int

    @property
    def speed(self) -> float:
        return len(self.ids) / self.seconds


def peers(drafters: Mapping[str, str], ggufs: Mapping[str, Path], context: int) -> dict[str, Peer]:
    """Those for whom there is something to do; SystemExit where one is not installed. `ggufs`: by their type.
    `context`: the most tokens of a prompt and its answer."""
    found = {
        "transformers": Peer("plain", "transformers", "none"),
        "transformers, prompt lookup": Peer("prompt-lookup", "transformers", "ngram"),
    }
    for mode in ("dflash", "dflash2"):
        if folder := drafters.get(mode):
            found[f"z-lab's {mode}"] = Peer(mode, "dflash", mode, (folder,))
    for kind, file in ggufs.items():
        more = (str(file), str(context))
        found[f"llama.cpp, {kind}"] = Peer("plain", "llama_cpp", "none", more)
        if kind == "BF16":  # the weights as all the others have them
            found[f"llama.cpp, {kind}, prompt lookup"] = Peer("prompt-lookup", "llama_cpp", "ngram", more)
    for name, peer in found.items():
        if find_spec(peer.package) is None:
            raise SystemExit(f"{name} needs {peer.package}: pip install {PACKAGES[peer.package]}")
    return found


class Running:
    """A peer's process, idle until it is asked."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self._name, self._process = name, process

    def ask(self, prompt: Sequence[int], tokens: int) -> Written:
        self._process.stdin.write(json.dumps({"ids": list(prompt), "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self._name} ended with status {self._process.wait()}")
        answer = json.loads(line)
        return Written(tuple(answer["ids"]), answer["seconds"], answer["forwards"] - 1)


@contextmanager
def running(options: Options, chosen: Mapping[str, Peer]) -> Iterator[dict[str, Running]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(_process(options, name, peer)) for name, peer in chosen.items()}


@contextmanager
def _process(options: Options, name: str, peer: Peer) -> Iterator[Running]:
    program = PROGRAMS.get(peer.package, "bench.decode.peer")
    command = [sys.executable, "-m", program, peer.kind, str(options.model), str(options.threads), *peer.more]
    environment = {**os.environ, **openmp(options.threads)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # Leaving the block closes its input, which ends it.
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        yield Running(name, process)
