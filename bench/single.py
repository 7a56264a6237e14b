"""One stream, plain decoding: `tandem serve` (three processes, asked over gRPC) against transformers' `generate`, the
same folder, bf16, greedy, the same prompts and number of tokens. The two never compute at the same time.

tokens/s counts whole answers, prompt included. ms/token is the time between tokens after the first.
"""

import statistics
from collections.abc import Callable, Sequence

from bench.client import Answer, ask, asking, fingerprint, running
from bench.command import Options, Result, main
from bench.pairs import means, ratio, there_and_back
from bench.reference import reference
from bench.texts import QUESTIONS, chats

Answers = list[Answer]


def measure(options: Options) -> Result:
    tokens, questions = (12, QUESTIONS[:1]) if options.quick else (96, QUESTIONS)
    prompts = list(map(chats(options.model), questions))
    with running(options) as stub, reference(options) as transformers:

        def over(one: Callable[[Sequence[int]], Answer]) -> Callable[[], Answers]:
            return lambda: [one(prompt) for prompt in prompts]

        ways = {
            "tandem": over(lambda prompt: ask(stub, asking(prompt, tokens))),
            "transformers": over(lambda prompt: transformers.ask(prompt, tokens)),
        }
        samples = there_and_back(ways, options.repeats)
        numerics = fingerprint(stub)
    rates = {name: means(pairs, rate) for name, pairs in samples.items()}
    steps = {name: means(pairs, step_ms) for name, pairs in samples.items()}
    rows = [
        {"way": name, "tokens/s": statistics.median(rates[name]), "ms/token": statistics.median(steps[name])}
        for name in ways
    ]
    return Result(
        rows=rows,
        ratios={
            "tokens/s, tandem / transformers": ratio(rates["tandem"], rates["transformers"]),
            "ms/token, transformers / tandem": ratio(steps["transformers"], steps["tandem"]),
        },
        samples={"tokens/s": rates, "ms/token": steps},
        settings={
            "tokens": tokens,
            "prompts": len(prompts),
            "numerics": numerics,
            "answers with equal tokens": same(samples["tandem"][0][0], samples["transformers"][0][0]),
        },
    )


def rate(answers: Answers) -> float:
    return sum(len(answer.ids) for answer in answers) / sum(answer.total_s for answer in answers)


def step_ms(answers: Answers) -> float:
    steps = sum(len(answer.ids) - 1 for answer in answers)
    return 1e3 * sum(answer.total_s - answer.first_s for answer in answers) / steps


def same(ours: Answers, theirs: Answers) -> str:
    """bf16 kernels differ in their last bit, so not all need be."""
    equal = sum(a.ids == b.ids for a, b in zip(ours, theirs, strict=True))
    return f"{equal} of {len(ours)}"


if __name__ == "__main__":
    main("single", __doc__, measure)
