"""The one path from a request to the deltas of its choices; every face is a reader of it.

Tokenise off the event loop, ask the target for one sequence per choice, merge, make text of tokens. While nothing was
sent to the client, a target that was restarted (UNAVAILABLE) or that serves other tokenizer files is asked once more.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace

from tandem.v1.target_pb2 import TargetServiceGenerateRequest, TargetServiceGenerateResponse

from services.errors import (
    Internal,
    InvalidRequest,
    TandemError,
    TokenizerMismatch,
    Unavailable,
    Unsupported,
)
from services.gateway.check import check
from services.gateway.choice import Choice, Delta, End
from services.gateway.interleave import Interleaved
from services.gateway.messages import as_written, target_request
from services.gateway.metrics import Account, Metrics
from services.gateway.prompt import encode, prompt_ids
from services.gateway.report import summed
from services.gateway.request import GenerationRequest, drawn_seed
from services.gateway.targets import Served, Target
from services.wire.trace import Trace


class Generator:
    """Starts generations, and knows which run. `timeout_s` bounds those that bring no nearer deadline."""

    def __init__(self, target: Target, metrics: Metrics, *, max_choices: int, timeout_s: float) -> None:
        self.target = target
        self.metrics = metrics
        self.max_choices = max_choices
        self.draining = False
        self.closed = False
        self._timeout_s = timeout_s
        self._running: set[Generation] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def ready(self) -> bool:
        """A generation that starts now would be served."""
        return self.target.ready and not self.draining

    def start(self, request: GenerationRequest, *, timeout_s: float | None = None, trace: Trace = ()) -> "Generation":
        """Nothing happens before the first delta is asked for. `trace` goes to the target with every call."""
        allowed = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        return Generation(self, request, deadline=asyncio.get_running_loop().time() + allowed, trace=trace)

    async def count(self, request: GenerationRequest) -> int:
        """Tokens of the prompt, whether they fit the context or not."""
        served = await self.target.served()
        check(request, served.description, max_choices=self.max_choices)
        return len(await asyncio.to_thread(prompt_ids, request, served))

    async def drain(self, grace_s: float) -> None:
        """Start nothing more. What runs has `grace_s` to finish, and then ends with an error that says why."""
        self.draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), grace_s)
        self.closed = True
        for generation in self._running:
            generation.fail(shutting_down())

    @contextmanager
    def running(self, generation: "Generation") -> Iterator[Account]:
        if self.draining:
            raise shutting_down()
        self._running.add(generation)
        self._idle.clear()
        try:
            with self.metrics.account(generation.choices) as account:
                yield account
        finally:
            generation.prepared.set()  # nobody waits to be told more
            self._running.discard(generation)
            if not self._running:
                self._idle.set()


class Generation:
    """One request being answered: read `deltas` to the end, or close them.

    `served` and `prompt_tokens` are set once `prepared` is, and `prepared` before the first delta comes or none will.
    """

    served: Served
    prompt_tokens: int | None = None

    def __init__(self, generator: Generator, request: GenerationRequest, *, deadline: float, trace: Trace) -> None:
        self.request = request
        self.choices = request.n
        self.deltas = self._deltas()
        self.prepared = asyncio.Event()
        self._generator = generator
        self._target = generator.target
        self._deadline = deadline
        self._trace = trace
        self._seed = drawn_seed() if request.seed is None else request.seed
        self._rounds: Interleaved[TargetServiceGenerateResponse] | None = None

    def fail(self, error: TandemError) -> None:
        """End with `error` instead of waiting for the target any longer."""
        if self._rounds:
            self._rounds.fail(error)

    async def _deltas(self) -> AsyncGenerator[Delta, None]:
        spent = set[type[TandemError]]()  # errors that are final by now
        with self._generator.running(self) as account:
            while True:
                try:
                    async with aclosing(self._attempt()) as deltas:
                        async for delta in deltas:
                            spent = {Unavailable, TokenizerMismatch}
                            account.took(delta, prompt_tokens=self.prompt_tokens or 0)
                            yield delta
                        return
                except (Unavailable, TokenizerMismatch) as error:
                    if isinstance(error, TokenizerMismatch) and TokenizerMismatch in spent:
                        raise Unavailable("the model is being replaced") from error
                    if type(error) in spent or self._generator.closed:
                        raise
                    spent.add(type(error))
                await self._target.refresh()

    async def _attempt(self) -> AsyncGenerator[Delta, None]:
        request, served = self.request, await self._target.served()
        self.served = served
        check(request, served.description, max_choices=self._generator.max_choices)
        ids = await asyncio.to_thread(encode, request, served)
        if self._generator.closed:
            raise shutting_down()
        self.prompt_tokens = len(ids)
        self.prepared.set()
        asks = [
            target_request(
                request,
                choice=choice,
                prompt_ids=ids,
                tokenizer_hash=served.description.tokenizer_hash,
                seed=self._seed,
            )
            for choice in range(request.n)
        ]
        choices = [Choice(index, request, served) for index in range(request.n)]
        unfinished = request.n
        self._rounds = Interleaved([self._rounds_of(ask) for ask in asks])
        async with aclosing(aiter(self._rounds)) as rounds:
            async for index, round in rounds:
                delta = choices[index].take(round)
                unfinished -= delta.finish is not None
                yield delta if unfinished else replace(delta, end=_end(len(ids), choices))

    async def _rounds_of(
        self, ask: TargetServiceGenerateRequest
    ) -> AsyncGenerator[TargetServiceGenerateResponse, None]:
        """The rounds of one sequence up to its finish; how the call ends after that is of no interest."""
        timeout_s = self._deadline - asyncio.get_running_loop().time()
        finished = False
        try:
            async with aclosing(self._target.generate(ask, timeout_s=timeout_s, trace=self._trace)) as rounds:
                async for round in rounds:
                    if not finished:
                        finished = round.HasField("finish")
                        yield round
        except (InvalidRequest, Unsupported) as error:
            raise as_written(error, self.request) from error
        except TandemError:
            if not finished:
                raise
        if not finished:
            raise Internal("the target ended a sequence without saying why")


def _end(prompt_tokens: int, choices: Sequence[Choice]) -> End:
    return End(
        prompt_tokens=prompt_tokens,
        completion_tokens=sum(choice.generated for choice in choices),
        report=summed([choice.report for choice in choices]),
    )


def shutting_down() -> Unavailable:
    return Unavailable("the service is shutting down")
