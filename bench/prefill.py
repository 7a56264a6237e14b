"""Time to the first token of a prompt of 2000 tokens: `tandem serve`, asked over gRPC, with every size of
`prefill_chunk` side by side, and transformers' `generate` of one token. Nothing else runs beside the prompt, which is
when large chunks are at their best; the other sequences of a round wait longer for them.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack

from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from bench.client import ask, asking, fingerprint, running
from bench.command import Options, Result, main
from bench.pairs import means, ratio, there_and_back
from bench.reference import reference
from bench.texts import of_length
from services.config import TargetSettings

CHUNKS = (16, 32, 64, 128, 256, 512)
DEFAULT = TargetSettings.model_fields["prefill_chunk"].default


def measure(options: Options) -> Result:
    length, chunks = (64, (16, DEFAULT)) if options.quick else (2000, tuple(sorted({*CHUNKS, DEFAULT})))
    prompt = of_length(options.model, length)
    request = asking(prompt, 1)
    with ExitStack() as stack:
        transformers = stack.enter_context(reference(options))
        stubs = {
            chunk: stack.enter_context(
                running(options, f"--prefill-chunk={chunk}", f"--round-tokens={max(chunk, 256)}")
            )
            for chunk in chunks
        }

        def way(stub: GenerationServiceStub) -> Callable[[], float]:
            return lambda: ask(stub, request).first_s

        ways = {"transformers": lambda: transformers.ask(prompt, 1).first_s}
        ways |= {f"chunk {chunk}": way(stub) for chunk, stub in stubs.items()}
        samples = there_and_back(ways, options.repeats)
        numerics = fingerprint(stubs[DEFAULT])
    times = {name: means(pairs, float) for name, pairs in samples.items()}
    default = f"chunk {DEFAULT}"
    middle = {name: statistics.median(each) for name, each in times.items()}
    return Result(
        rows=[{"way": name, "first token s": each, "prompt tokens/s": length / each} for name, each in middle.items()],
        ratios={f"time, transformers / {name}": ratio(times["transformers"], times[name]) for name in list(ways)[1:]}
        | {
            f"time, {default} / {name}": ratio(times[default], times[name])
            for name in list(ways)[1:]
            if name != default
        },
        samples={"first token s": times},
        settings={"prompt tokens": length, "default chunk": DEFAULT, "numerics": numerics},
    )


if __name__ == "__main__":
    main("prefill", __doc__, measure)
