"""A client of a real system: one request at a time or many together, with the moment every message arrived."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tandem.v1 import generation_pb2 as pb
from tandem.v1.generation_pb2_grpc import GenerationServiceStub
from tandem.v1.types_pb2 import Sampling, Speculation, SpeculationReport, Stopping

from bench.command import Options
from bench.machine import openmp
from services.wire.codec import MODES
from tests.system.running import tandem

TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Answer:
    """`counts`: tokens of each message. `arrivals_s`: when it came, after the request was sent; `sent` is on the clock
    that all processes share."""

    ids: tuple[int, ...]
    counts: tuple[int, ...]
    arrivals_s: tuple[float, ...]
    sent: float = 0.0
    report: SpeculationReport | None = None

    @property
    def first_s(self) -> float:
        return self.arrivals_s[0]

    @property
    def total_s(self) -> float:
        return self.arrivals_s[-1]


def asking(
    prompt: Sequence[int],
    tokens: int,
    *,
    mode: str = "none",
    to_the_end: bool = False,
    temperature: float = 0,
    seed: int = 1,
    stats: bool = False,
) -> pb.GenerateRequest:
    """A request for `tokens` tokens; an answer that ends by itself may be shorter if `to_the_end`. A mode that is named
    always drafts (`strict`). `stats`: the report tells accepted drafts by mode and position."""
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=prompt),
        max_tokens=tokens,
        sampling=Sampling(temperature=temperature, seed=seed),
        stopping=Stopping(ignore_eos=not to_the_end),
        speculation=Speculation(mode=MODES.value(mode), strict=mode not in ("none", "auto"), stats=stats),
    )


def ask(stub: GenerationServiceStub, request: pb.GenerateRequest) -> Answer:
    ids: list[int] = []
    counts, arrivals, report = [], [], None
    sent = time.perf_counter()
    for message in stub.Generate(request, timeout=TIMEOUT_S):
        if message.tokens:
            arrivals.append(time.perf_counter() - sent)
            counts.append(len(message.tokens))
            ids += [token.id for token in message.tokens]
        if message.HasField("report"):
            report = message.report
    return Answer(tuple(ids), tuple(counts), tuple(arrivals), sent, report)


@dataclass(frozen=True, slots=True)
class Together:
    """Answers to requests that were sent at once; `seconds` from the first that is sent to the last message."""

    answers: tuple[Answer, ...]
    seconds: float


def ask_together(stub: GenerationServiceStub, requests: Sequence[pb.GenerateRequest]) -> Together:
    with ThreadPoolExecutor(len(requests)) as pool:
        begin = time.perf_counter()
        answers = tuple(pool.map(lambda request: ask(stub, request), requests))
        return Together(answers, time.perf_counter() - begin)


def speed(together: Together) -> float:
    """Tokens a second of all requests."""
    return sum(len(answer.ids) for answer in together.answers) / together.seconds


@contextmanager
def running(options: Options, *flags: str) -> Iterator[GenerationServiceStub]:
    """`tandem serve` in processes of its own: bf16, the threads of `options`, the settings in `flags`."""
    flags = (f"--threads={options.threads}", *flags)
    with tandem(options.model, *flags, environment=openmp(options.threads)) as system, system.stub() as stub:
        yield stub


def fingerprint(stub: GenerationServiceStub) -> str:
    """The numerics that the system says it has."""
    target = stub.Describe(pb.DescribeRequest(), timeout=TIMEOUT_S).target
    return target.fingerprint if target.exact else f"{target.fingerprint}, not exact: {target.inexact_reason}"
