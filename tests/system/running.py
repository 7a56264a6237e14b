"""`tandem serve` as a user runs it: real processes, real model, free ports."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import types_pb2
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from services.wire.codec import MODES
from services.wire.limits import CLIENT_OPTIONS


@dataclass
class Answer:
    """One choice: its token ids, its text, the messages it came in, how it ended and what was reported."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    rounds: int = 0
    finish: int = 0
    report: types_pb2.SpeculationReport | None = None


@dataclass
class Tandem:
    """A running `tandem serve`. `log` grows while it runs."""

    process: subprocess.Popen[str]
    url: str
    grpc_address: str
    curl: str
    model: str
    log: list[str]

    @contextmanager
    def stub(self) -> Iterator[GenerationServiceStub]:
        with grpc.insecure_channel(self.grpc_address, options=CLIENT_OPTIONS) as channel:
            yield GenerationServiceStub(channel)

    def ask(self, request: pb.GenerateRequest, *, seen: threading.Event | None = None, after: int = 3) -> Answer:
        """Stream one request to its end; `seen` is set once `after` messages came."""
        answer = Answer()
        with self.stub() as stub:
            for response in stub.Generate(request, timeout=300):
                answer.ids += [token.id for token in response.tokens]
                answer.text += response.text
                answer.rounds += bool(response.tokens)
                if response.HasField("finish"):
                    answer.finish = response.finish.kind
                if response.HasField("report"):
                    answer.report = response.report
                if seen is not None and answer.rounds >= after:
                    seen.set()
        return answer

    def ask_until_drafted(self, request: pb.GenerateRequest, *, within_s: float = 60) -> Answer:
        """Ask a strict request, whose drafter was away, until it is drafted for again."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            try:
                answer = self.ask(request)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                continue  # the drafter is not back yet
            if answer.report.drafted:
                return answer
        raise AssertionError("it was never drafted for again")

    def child(self, role: str) -> int:
        """The process id of one of the three programs, now."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                command = (stat.parent / "cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if parent == self.process.pid and role in command:
                return int(stat.parent.name)
        raise LookupError(f"no {role} runs")

    def kill(self, role: str) -> int:
        pid = self.child(role)
        os.kill(pid, signal.SIGKILL)
        return pid


@contextmanager
def tandem(model: Path, *flags: str, environment: Mapping[str, str] = {}) -> Iterator[Tandem]:
    """Start `tandem serve` on free ports, wait until it says that it is ready, and end it with SIGTERM."""
    command = [sys.executable, "-m", "services.cli", "serve", "--port=0", f"--model={model}", *flags]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    log: list[str] = []
    reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
    reader.start()
    try:
        yield _greeting(process, log)
    finally:
        process.terminate()
        process.wait(60)
        reader.join()
        process.stdout.close()
        process.stderr.close()


def _greeting(process: subprocess.Popen[str], log: Sequence[str]) -> Tandem:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("curl "):
            break
    else:
        raise AssertionError("tandem serve ended before it was ready:\n" + "".join(log))
    text = "".join(lines)
    ready = re.search(r"^(\S+) is ready on (http://\S+?)(?: and gRPC (\S+?))?\. ", text, re.MULTILINE)
    return Tandem(process, ready[2], ready[3], lines[-1].strip(), ready[1], log)


def chat(
    content: str,
    max_tokens: int,
    *,
    mode: str = "ngram",
    max_draft_tokens: int | None = None,
    temperature: float = 0.0,
    top_p: float | None = None,
    seed: int = 1,
    strict: bool = False,
) -> pb.GenerateRequest:
    """One user message. `strict`: the policy may not let the mode rest."""
    return pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=content)]),
        max_tokens=max_tokens,
        sampling=types_pb2.Sampling(temperature=temperature, top_p=top_p, seed=seed),
        speculation=types_pb2.Speculation(
            mode=MODES.value(mode), max_draft_tokens=max_draft_tokens, strict=strict, stats=True
        ),
    )


def one_word(count: int) -> pb.GenerateRequest:
    """Answered with " hello", `count` times: what a model repeats by itself differs between processors."""
    request = chat("Say hello.", count, strict=True)
    request.sampling.logit_bias.add(id=33662, bias=100)
    return request
