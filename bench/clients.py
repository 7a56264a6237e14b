"""Clients that ask for this and that, and leave when they like."""

import asyncio
import json
import random
from dataclasses import dataclass, field

import httpx
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import types_pb2
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from services.wire.clients import gateway_channel
from services.wire.codec import MODES
from tests.system.running import Tandem

WORDS = (
    "the",
    "fox",
    "and",
    "a",
    "bear",
    "ran",
    "over",
    "seven",
    "hills",
    "to",
    "count",
    "every",
    "star",
    "at",
    "night",
)
MODES_ASKED = ("auto", "ngram", "ngram", "none", "mtp")
TIMEOUT_S = 300


@dataclass(slots=True)
class Tally:
    """What became of requests: read to the end, left by their client, or failed though nobody asked for it."""

    finished: int = 0
    left: int = 0
    tokens: int = 0
    errors: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """`leave_after` so many messages; None: never."""

    model: str
    prompt: str
    max_tokens: int
    mode: str
    temperature: float
    seed: int
    leave_after: int | None

    @classmethod
    def drawn(cls, rng: random.Random, model: str) -> "Wish":
        words = rng.choice((3, 3, 3, 10, 10, 10, 30, 30, 30, 300))
        return cls(
            model=model,
            prompt=" ".join(rng.choices(WORDS, k=words)),
            max_tokens=rng.randint(1, 24),
            mode=rng.choice(MODES_ASKED),
            temperature=rng.choice((0.0, 0.8)),
            seed=rng.randrange(2**31),
            leave_after=rng.choice((None, None, 0, 1, 5)),
        )


async def client(running: Tandem, tally: Tally, seed: int) -> None:
    """Ask one thing after another until cancelled."""
    rng = random.Random(seed)
    async with (
        httpx.AsyncClient(base_url=running.url, timeout=TIMEOUT_S, trust_env=False) as http,
        gateway_channel(running.grpc_address) as channel,
    ):
        while True:
            wish = Wish.drawn(rng, running.model)
            try:
                match rng.randrange(3):
                    case 0:
                        await over_grpc(GenerationServiceStub(channel), wish, tally)
                    case 1:
                        await streamed(http, wish, tally)
                    case 2:
                        await whole(http, wish, tally)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"[:300]
                tally.errors[what] = tally.errors.get(what, 0) + 1


async def over_grpc(stub: GenerationServiceStub, wish: Wish, tally: Tally) -> None:
    request = pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=wish.prompt)]),
        max_tokens=wish.max_tokens,
        sampling=types_pb2.Sampling(temperature=wish.temperature, seed=wish.seed),
        speculation=types_pb2.Speculation(mode=MODES.value(wish.mode)),
    )
    call, messages, tokens, ended = stub.Generate(request, timeout=TIMEOUT_S), 0, 0, False
    if wish.leave_after != 0:
        async for message in call:
            messages, tokens, ended = messages + 1, tokens + len(message.tokens), message.HasField("report")
            if messages == wish.leave_after and not ended:
                break
    if ended:
        tally.finished, tally.tokens = tally.finished + 1, tally.tokens + tokens
    elif wish.leave_after is None:
        raise AssertionError("a stream over gRPC ended without a report")
    else:
        call.cancel()
        tally.left += 1


async def streamed(http: httpx.AsyncClient, wish: Wish, tally: Tally) -> None:
    async with http.stream("POST", "/v1/chat/completions", json=_body(wish) | {"stream": True}) as response:
        if response.status_code != 200:
            raise AssertionError(f"{response.status_code} {await response.aread()!r}")
        events, last = 0, ""
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            if events == wish.leave_after:
                tally.left += 1
                return
            events, last = events + 1, line
            if '"error"' in line:
                raise AssertionError(line)
    if last != "data: [DONE]":
        raise AssertionError(f"a stream ended with {last!r}")
    tally.finished += 1


async def whole(http: httpx.AsyncClient, wish: Wish, tally: Tally) -> None:
    """Who waits for a whole answer leaves by the clock: a tenth of a second for each message not waited for."""
    try:
        async with asyncio.timeout(None if wish.leave_after is None else wish.leave_after / 10):
            response = await http.post("/v1/chat/completions", json=_body(wish))
    except TimeoutError:
        tally.left += 1
        return
    if response.status_code != 200:
        raise AssertionError(f"{response.status_code} {response.text}")
    tally.finished += 1
    tally.tokens += json.loads(response.text)["usage"]["completion_tokens"]


def _body(wish: Wish) -> dict[str, object]:
    return {
        "model": wish.model,
        "messages": [{"role": "user", "content": wish.prompt}],
        "max_tokens": wish.max_tokens,
        "temperature": wish.temperature,
        "seed": wish.seed,
        "speculation": wish.mode,
    }
