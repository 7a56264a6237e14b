"""Many streams at once, plain decoding, `tandem serve` asked over gRPC: tokens a second of all streams together, of 8
against 1 and of 64 against 8. Prompts are computed in that time too.
"""

import statistics
from collections.abc import Callable

from bench.client import ask_together, asking, fingerprint, running, speed
from bench.command import Options, Result, main
from bench.pairs import means, ratio, there_and_back
from bench.texts import QUESTIONS, chats

STEPS, QUICK_STEPS = ((1, 8), (8, 64)), ((1, 2), (2, 4))


def measure(options: Options) -> Result:
    tokens, steps = (4, QUICK_STEPS) if options.quick else (64, STEPS)
    prompts = list(map(chats(options.model), QUESTIONS))
    most = max(streams for step in steps for streams in step)
    with running(options, f"--max-sequences={most}") as stub:

        def wave(streams: int) -> Callable[[], float]:
            requests = [asking(prompts[number % len(prompts)], tokens) for number in range(streams)]
            return lambda: speed(ask_together(stub, requests))

        numerics = fingerprint(stub)
        rows, ratios, samples = [], {}, {}
        for few, many in steps:
            pairs = there_and_back({"few": wave(few), "many": wave(many)}, options.repeats)
            rates = {name: means(pairs[name], float) for name in pairs}
            name = f"{many} streams / {few}"
            ratios[name], samples[name] = ratio(rates["many"], rates["few"]), rates
            rows += [
                {"compared": name, "streams": streams, "tokens/s": statistics.median(rates[which])}
                for which, streams in (("few", few), ("many", many))
            ]
    return Result(rows=rows, ratios=ratios, samples=samples, settings={"tokens": tokens, "numerics": numerics})


if __name__ == "__main__":
    main("concurrent", __doc__, measure)
