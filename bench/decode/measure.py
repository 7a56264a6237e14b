"""The measurement: all workloads, temperatures, batches and modes against one running system."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.client import Answer, fingerprint
from bench.command import Options, Result
from bench.decode.options import Wanted
from bench.decode.rows import COUNTED, LOOP, Group
from bench.decode.system import serving
from bench.decode.turns import Asking, Prompt, turns
from bench.decode.workloads import prompts
from bench.ngram import Answers
from bench.texts import chats, loops


def measure(options: Options, wanted: Wanted) -> Result:
    asked = prompts_of(options, wanted)
    groups, kinds = [], {}
    with serving(options, wanted) as (stub, modes):
        say(f"modes {', '.join(modes)}; {len(asked) * len(wanted.temperatures)} times {len(wanted.batches)} rows each")
        for workload in wanted.workloads:
            for temperature in wanted.temperatures:
                asking = Asking(stub, modes, temperature, wanted.tokens)
                texts = Texts.written(asking, asked[workload], max(wanted.batches))
                kinds[f"{workload}, T {temperature:g}"] = texts.kinds
                groups += _groups(workload, texts, asking, options, wanted)
        numerics = fingerprint(stub)
    return Result(
        rows=[row for group in groups for row in group.rows()],
        ratios={name: each for group in groups for name, each in group.ratios().items()},
        samples={
            "seconds": {
                group.label: {
                    mode: [[half.seconds for half in pair] for pair in pairs] for mode, pairs in group.samples.items()
                }
                for group in groups
            },
            "kinds": kinds,
        },
        settings={
            "tokens at most": wanted.tokens,
            "modes": ", ".join(modes),
            "numerics": numerics,
            "answers with equal tokens": "all, in every mode and run",
            "answers that loop": _looping(kinds),
        },
        warnings=[f"{what}: every answer loops" for what, each in kinds.items() if COUNTED not in each.values()],
    )


def prompts_of(options: Options, wanted: Wanted) -> dict[str, list[Prompt]]:
    """By workload. SystemExit for a package that is missing, so ask before anything runs."""
    encode = chats(options.model)
    return {
        workload: [
            Prompt(f"{workload} {number}", encode(text), seed=number)
            for number, text in enumerate(prompts(workload, wanted.prompts), 1)
        ]
        for workload in wanted.workloads
    }


@dataclass(frozen=True, slots=True)
class Texts:
    """Prompts, what plain decoding answers to each, and which answers loop. By the name of the prompt."""

    prompts: Sequence[Prompt]
    answers: Answers

    @classmethod
    def written(cls, asking: Asking, prompts: Sequence[Prompt], at_once: int) -> "Texts":
        answers: dict[str, Answer] = {}
        for first in range(0, len(prompts), at_once):
            some = prompts[first : first + at_once]
            answers |= zip((prompt.name for prompt in some), asking.ask(some, "none").answers, strict=True)
        return cls(prompts, answers)

    @property
    def kinds(self) -> dict[str, str]:
        return {name: LOOP if loops(answer.ids) else COUNTED for name, answer in self.answers.items()}

    def of(self, kind: str) -> list[Prompt]:
        return [prompt for prompt in self.prompts if self.kinds[prompt.name] == kind]


def _groups(workload: str, texts: Texts, asking: Asking, options: Options, wanted: Wanted) -> Iterator[Group]:
    for batch in wanted.batches:
        for kind in (COUNTED, LOOP):
            if not (prompts := texts.of(kind)):
                continue
            chosen = turns(prompts, batch, answers=wanted.answers, least=wanted.turns)
            different = len({prompt.name for turn in chosen for prompt in turn})
            begin = time.perf_counter()
            samples = asking.measure(chosen, texts.answers, options.repeats)
            group = Group(workload, asking.temperature, batch, kind, different, samples)
            say(f"{group.label}: {', '.join(f'{mode} {group.speed(mode):.0f}' for mode in samples)} tokens/s, "
                 f"in {time.perf_counter() - begin:.0f} s")  # fmt: skip
            yield group


def _looping(kinds: Mapping[str, Mapping[str, str]]) -> str:
    counts = {what: list(each.values()).count(LOOP) for what, each in kinds.items()}
    return ", ".join(f"{what}: {count} of {len(kinds[what])}" for what, count in counts.items() if count) or "none"


def say(what: str) -> None:
    print(f"bench.decode: {what}", file=sys.stderr, flush=True)
