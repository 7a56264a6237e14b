"""Several generations read as one: the prompts of one call."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import accumulate

from services.gateway.check import check
from services.gateway.choice import Delta, End
from services.gateway.generate import Generator
from services.gateway.interleave import Interleaved
from services.gateway.report import summed
from services.gateway.request import GenerationRequest
from services.gateway.targets import Served
from services.wire.trace import Trace


class Together:
    """Choices are numbered on from prompt to prompt, and the end is the sum of all ends. `request` is the first one,
    which differs from the others in its prompt only; `served` is set once the first delta has come."""

    served: Served

    def __init__(self, generator: Generator, requests: Sequence[GenerationRequest], *, trace: Trace) -> None:
        self.request = requests[0]
        self.choices = sum(request.n for request in requests)
        self.deltas = self._deltas()
        self._generator = generator
        self._requests = requests
        self._trace = trace

    async def _deltas(self) -> AsyncGenerator[Delta, None]:
        if len(self._requests) > 1:  # nothing runs for the first prompt when the last is refused
            served = await self._generator.target.served()
            for request in self._requests:
                check(request, served.description, max_choices=self._generator.max_choices)
        generations = [self._generator.start(request, trace=self._trace) for request in self._requests]
        starts = [0, *accumulate(request.n for request in self._requests)]
        ends: dict[int, End] = {}
        deltas = Interleaved([generation.deltas for generation in generations])
        async with aclosing(aiter(deltas)) as pairs:
            async for index, delta in pairs:
                self.served = generations[index].served
                if delta.end:
                    ends[index] = delta.end
                last = len(ends) == len(generations)
                yield replace(delta, choice=starts[index] + delta.choice, end=_sum(ends) if last else None)


def _sum(ends: dict[int, End]) -> End:
    ordered = [ends[index] for index in sorted(ends)]
    return End(
        prompt_tokens=sum(end.prompt_tokens for end in ordered),
        completion_tokens=sum(end.completion_tokens for end in ordered),
        report=summed([end.report for end in ordered]),
    )
