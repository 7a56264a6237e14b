"""How drafters should draw at a temperature: the likeliest token, one of their own distribution, or one under the noise
that the target will draw with.

The target writes answers with known seeds, one for each repeat; then every shipped drafter drafts along them in each of
the three ways, and keeps what agrees. What is counted are tokens a round, which no clock changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import torch

from bench.command import Options, Result, main
from bench.pairs import ratio
from bench.texts import COPYING, QUESTIONS, chats
from services.config.settings import DrafterSettings
from services.drafter.draw import Draws
from services.drafter.interface import AnyDrafter
from services.drafter.process import load
from services.engine.engine import Engine
from services.engine.sampling import SamplingParams
from services.shipped.companions import MODELS, companions
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer
from services.training.evaluate import Sample, acceptance
from services.training.lanes import Captured, Task, Written, write

TEMPERATURES = (0.7, 1.0)
LANES, LONGEST = 32, 1024


def measure(options: Options) -> Result:
    folders = {mode: folder for mode, folder in companions(options.model).items() if mode in MODELS}
    tokens, questions = (12, QUESTIONS[:1]) if options.quick else (128, [*QUESTIONS, *COPYING.values()])
    drafters = {mode: _ways(options, mode, folder) for mode, folder in folders.items()}
    layers = sorted({layer for ways in drafters.values() for layer in ways["argmax"].description.tap_layers})
    captured = Captured(tuple(layers), True)
    prompts = list(map(chats(options.model), questions))
    rows, ratios, samples = [], {}, {}
    for temperature in TEMPERATURES:
        written = _answers(options, captured, prompts, temperature, tokens)
        for mode, ways in drafters.items():
            gained = {draws: [_gained(way, repeat, captured) for repeat in written] for draws, way in ways.items()}
            samples[f"{mode} at {temperature}"] = gained
            for draws in ways:
                against = ratio(gained[draws], gained["argmax"])
                rows.append(
                    {
                        "drafter": mode,
                        "temperature": temperature,
                        "draws": draws,
                        "tokens a round": sum(gained[draws]) / len(gained[draws]),
                        "/ argmax": against.median,
                        "from": against.low,
                        "to": against.high,
                    }
                )
                if draws != "argmax":
                    ratios[f"{mode} at {temperature}, tokens a round, {draws} / argmax"] = against
    return Result(
        rows=rows,
        ratios=ratios,
        samples={"tokens a round": samples},
        settings={"tokens at most": tokens, "prompts": len(prompts), "drafts": "as many as a drafter gives by default"},
    )


def _ways(options: Options, mode: str, folder: Path) -> Mapping[Draws, AnyDrafter]:
    """The drafter, drawing in each way."""
    ways = {}
    for draws in get_args(Draws):
        given = {mode: folder, f"{mode}_draws": draws, "modes": [mode], "model": options.model}
        (ways[draws],) = load(DrafterSettings(threads=options.threads, **given))
    return ways


def _answers(
    options: Options, captured: Captured, prompts: Sequence[Sequence[int]], temperature: float, tokens: int
) -> list[list[Written]]:
    """By repeat."""
    tokenizer = Tokenizer(TokenizerFiles.read(options.model))
    engine = Engine.load(
        options.model,
        dtype=torch.bfloat16,
        threads=options.threads,
        cache_rows=LANES * LONGEST,
        max_sequences=LANES,
        vocab_size=tokenizer.vocab_size,
        context=LONGEST,
    )

    def tasks() -> Iterator[Task]:
        for repeat in range(options.repeats):
            params = SamplingParams(temperature=temperature, seed=repeat)
            for ids in prompts:
                yield Task(
                    number=repeat, prompt_ids=ids, params=params, most=tokens, stop_ids=frozenset(tokenizer.stop_ids)
                )

    waiting = tasks()
    by_repeat: list[list[Written]] = [[] for _ in range(options.repeats)]
    for written in write(engine, captured, lambda: next(waiting, None), lanes=LANES):
        by_repeat[written.task.number].append(written)
    return by_repeat


def _gained(drafter: AnyDrafter, written: Sequence[Written], captured: Captured) -> float:
    """Tokens a round."""
    found = drafter.description
    columns = [captured.layers.index(layer) for layer in found.tap_layers]
    columns += [len(captured.layers)] * found.needs_final_hidden
    samples = []
    for each in written:
        assert each.taps_PKH is not None, "states are captured"
        samples.append(Sample(each.answer, each.taps_PKH[:, columns], each.task.params))
    return acceptance(drafter, samples, count=found.default_draft_tokens).tokens_per_round


if __name__ == "__main__":
    main("draws", __doc__, measure)
