"""Streams that are asked together, in every mode, there and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from bench.client import Together, ask_together, asking
from bench.ngram import Answers, refuse_differences
from bench.pairs import Samples, there_and_back

WARM_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Prompt:
    """`seed` is its own, so that an answer does not depend on what it is asked with."""

    name: str
    ids: Sequence[int]
    seed: int


Turn = Sequence[Prompt]
"""Prompts that are asked at once."""


def turns(prompts: Sequence[Prompt], batch: int, *, answers: int, least: int) -> list[Turn]:
    """So many turns that `answers` streams are asked, and at least `least`. Where prompts are too few for that, the
    first come again; but nothing is asked in a second turn only to fill it."""
    wanted = max(least, -(-answers // batch))
    count = max(1, min(wanted, -(-len(prompts) // batch)))
    streams = cycle(prompts)
    return [list(islice(streams, batch)) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Asking:
    """How prompts are asked in a row."""

    stub: GenerationServiceStub
    modes: Sequence[str]
    temperature: float
    tokens: int

    def ask(self, turn: Turn, mode: str, tokens: int | None = None) -> Together:
        requests = [
            asking(
                prompt.ids,
                tokens or self.tokens,
                mode=mode,
                to_the_end=True,
                temperature=self.temperature,
                seed=prompt.seed,
                stats=True,
            )
            for prompt in turn
        ]
        return ask_together(self.stub, requests)

    def ways(self, turn: Turn, tokens: int | None = None) -> Mapping[str, Callable[[], Together]]:
        return {mode: lambda mode=mode: self.ask(turn, mode, tokens) for mode in self.modes}

    def measure(self, turns: Sequence[Turn], known: Answers, repeats: int) -> Samples[Together]:
        """All turns one after another, each in every mode there and back `repeats` times, after a few tokens of the
        first prompt in every mode. SystemExit where an answer is not the `known` one of its prompt."""
        for way in self.ways(turns[0][:1], WARM_TOKENS).values():
            way()
        samples: Samples[Together] = {mode: [] for mode in self.modes}
        for turn in turns:
            measured = there_and_back(self.ways(turn), repeats, warm_up=False)
            _refuse_differences(turn, measured, known)
            for mode, pairs in measured.items():
                samples[mode] += pairs
        return samples


def _refuse_differences(turn: Turn, measured: Samples[Together], known: Answers) -> None:
    names = [f"{prompt.name}, stream {stream}" for stream, prompt in enumerate(turn)]
    expected = {name: known[prompt.name] for name, prompt in zip(names, turn, strict=True)}

    def named(half: Together) -> Answers:
        return dict(zip(names, half.answers, strict=True))

    runs = {mode: [(named(there), named(back)) for there, back in pairs] for mode, pairs in measured.items()}
    refuse_differences({"known": [(expected, expected)]} | runs)
