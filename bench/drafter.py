"""What drafting costs: the n-gram index, a draft, and a whole turn over loopback.

index_ms: feeding a context 8192 ids at once, best of the repeats. bytes_per_id: memory of that context, by tracemalloc.
absorb_us, draft_us: one commit of 3 ids and one draft of 7 on top of it, median and 99th of 2000 rounds.
turn_ms: a turn of 8 sequences, each with a feed of 3 ids and 7 drafts wanted, from the target's write to its read of
the answer, both ends in one process; median and 90th of 500 turns after 50 to warm up.
"""

import asyncio
import random
import time
import tracemalloc
from collections.abc import Sequence

from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceStub
from tandem.v1.types_pb2 import SPECULATION_MODE_NGRAM

from bench.command import Options, Result, main
from services.drafter.drafting import Drafting
from services.drafter.interface import Ask, Feed, Opening
from services.drafter.ngram import NgramDrafter
from services.drafter.servicer import DrafterServicer
from services.wire.clients import drafter_channel
from services.wire.serving import drafter_service, serving

LENGTH, VOCAB, SEQUENCES = 8192, 49_152, 8


def texts() -> dict[str, list[int]]:
    rng = random.Random(0)
    zipf = [min(VOCAB - 1, int(rng.paretovariate(1))) for _ in range(LENGTH)]  # as skewed as words are
    return {
        "random": [rng.randrange(VOCAB) for _ in range(LENGTH)],
        "zipf": zipf,
        "zipf, second half repeats": zipf[: LENGTH // 2] * 2,
        "period 5": [index % 5 for index in range(LENGTH)],
    }


def fed(drafter: NgramDrafter, ids: Sequence[int]):
    context = drafter.open(Opening(first_id=ids[0], max_positions=2 * LENGTH))
    drafter.absorb(context, Feed(0, ids[1:]))
    return context


def measure_index(ids: list[int], repeats: int) -> dict[str, float]:
    drafter, times = NgramDrafter(), []
    for _ in range(repeats):
        start = time.perf_counter()
        fed(drafter, ids)
        times.append(time.perf_counter() - start)
    tracemalloc.start()
    context = fed(drafter, ids)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    absorbing, drafting = [], []
    for step in range(0, 6000, 3):
        feed = Feed(context.fed, ids[step : step + 3])
        start = time.perf_counter()
        drafter.absorb(context, feed)
        absorbed = time.perf_counter()
        drafter.draft([Ask(context, 7)])
        drafting.append(time.perf_counter() - absorbed)
        absorbing.append(absorbed - start)
    return {
        "index_ms": min(times) * 1e3,
        "bytes_per_id": used / LENGTH,
        **{
            f"{name}_us_{label}": sorted(values)[int(len(values) * share)] * 1e6
            for name, values in (("absorb", absorbing), ("draft", drafting))
            for label, share in (("p50", 0.5), ("p99", 0.99))
        },
    }


async def measure_turns() -> dict[str, float]:
    times = []
    with Drafting.of([NgramDrafter()], max_contexts=SEQUENCES) as drafting:
        service = drafter_service(DrafterServicer(drafting))
        async with (
            serving("127.0.0.1:0", [service], grace_s=0) as server,
            drafter_channel(server.address) as channel,
        ):
            await server.ready()
            call = DrafterServiceStub(channel).Draft()
            await call.write(pb.DraftRequest(hello=pb.Hello(protocol_version=1, vocab_size=VOCAB)))
            await call.read()
            for id in range(SEQUENCES):
                opening = pb.Open(sequence=id, epoch=1, modes=[SPECULATION_MODE_NGRAM], max_positions=LENGTH)
                await call.write(pb.DraftRequest(open=opening))
            for number in range(550):
                start = time.perf_counter()
                await call.write(pb.DraftRequest(turn=turn(number)))
                await call.read()
                times.append(time.perf_counter() - start)
            call.cancel()
    times = sorted(times[50:])
    return {"turn_ms_p50": times[250] * 1e3, "turn_ms_p90": times[450] * 1e3}


def turn(number: int) -> pb.Turn:
    """Text of period 100, three ids a turn."""
    start = 3 * number
    ids = [(start + step) % 100 for step in (1, 2, 3)]
    return pb.Turn(
        turn=number,
        sequences=[
            pb.TurnSequence(
                sequence=id,
                epoch=1,
                frontier=start + 3,
                anchor=ids[-1],
                mode=SPECULATION_MODE_NGRAM,
                max_draft_tokens=7,
                feed=pb.Feed(sequence=id, epoch=1, start=start, ids=ids),
            )
            for id in range(SEQUENCES)
        ],
    )


def measure(options: Options) -> Result:
    named = dict(list(texts().items())[:1]) if options.quick else texts()
    indexed = {name: measure_index(ids, options.repeats) for name, ids in named.items()}
    turns = asyncio.run(measure_turns())
    return Result(
        rows=[{"text": name} | values for name, values in indexed.items()],
        samples=indexed | {f"{SEQUENCES} sequences over loopback": turns},
        settings={name: round(value, 3) for name, value in turns.items()},
    )


if __name__ == "__main__":
    main("drafter", __doc__, measure)
