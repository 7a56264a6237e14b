"""What the policies are put through. Costs are those of a 27B on one accelerator, of a sparse model, and of a CPU.

Acceptance by workload follows published tables: block drafters are strong on code and structured text and weak on
prose, multi-token prediction is even, and looking up helps where text repeats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.policy.world import Drafter, Target, Text

DENSE = Target(base_s=0.016, row_s=0.00012, free_rows=8, position_s=8e-8)
SPARSE = Target(base_s=0.005, row_s=0.0011, position_s=3e-8)
CPU = Target(base_s=0.022, row_s=0.0035, position_s=4e-7)

DFLASH = Drafter(
    "dflash2", 0.0035, {"code": 0.86, "prose": 0.45, "structured": 0.9, "noise": 0.15},
    sequence_s=0.0001, most=7, long=0.55,
)  # fmt: skip
MTP = Drafter(
    "mtp", 0.0008, {"code": 0.8, "prose": 0.65, "structured": 0.85, "noise": 0.3},
    draft_s=0.0009, sequence_s=0.00005, usual=3, fade=0.93,
)  # fmt: skip
NGRAM = Drafter(
    "ngram", 0.0005, {"code": 0.7, "prose": 0.4, "structured": 0.9, "noise": 0.1}, draft_s=0.0,
    proposes={"code": 0.45, "prose": 0.1, "structured": 0.6, "noise": 0.05},
)  # fmt: skip
SLOW = Drafter("mtp", 0.04, {"code": 0.8, "prose": 0.6, "structured": 0.8, "noise": 0.2}, draft_s=0.02, usual=3)
ALL = (DFLASH, MTP, NGRAM)
TELLING = tuple(replace(drafter, spread=1.0) for drafter in ALL)
"""The same for tokens that are not equally easy, with drafters that say how sure they are."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`texts` are answered in order, `load(fraction done)` at once; `clock(fraction done)` multiplies every time."""

    name: str
    target: Target
    drafters: Sequence[Drafter]
    texts: Callable[[], Sequence[Text]]
    load: Callable[[float], int] = lambda done: 1
    clock: Callable[[float], float] = lambda done: 1.0


def same(workload: str, *, count: int = 4, length: int = 1000, prompt: int = 300) -> Callable[[], Sequence[Text]]:
    return lambda: [Text(number, prompt, length, lambda i: workload) for number in range(count)]


def turns(*workloads: str, every: int, count: int, length: int) -> Callable[[], Sequence[Text]]:
    """Each text goes from one workload to the next and back."""
    return lambda: [
        Text(number, 500, length, lambda i: workloads[i // every % len(workloads)]) for number in range(count)
    ]


def mixed(*workloads: str, count: int, length: int) -> Callable[[], Sequence[Text]]:
    """Texts of different workloads beside each other."""

    def text(number: int) -> Text:
        return Text(number, 400, length, lambda i: workloads[number % len(workloads)])

    return lambda: [text(number) for number in range(count)]


def steps(*loads: int) -> Callable[[float], int]:
    return lambda done: loads[min(int(done * len(loads)), len(loads) - 1)]


def half_way(done: float) -> float:
    return 4.0 if done >= 0.5 else 1.0


SCENARIOS = (
    Scenario("code", DENSE, ALL, same("code")),
    Scenario("prose", DENSE, ALL, same("prose")),
    Scenario("noise, sparse target", SPARSE, ALL, same("noise")),
    Scenario("prose, sparse target", SPARSE, ALL, same("prose")),
    Scenario("code and prose in turns", DENSE, ALL, turns("code", "prose", every=400, count=3, length=1600)),
    Scenario("short requests", DENSE, ALL, mixed("code", "prose", "structured", "noise", count=60, length=64)),
    Scenario("extraction on a CPU", CPU, (NGRAM,), same("structured", length=600)),
    Scenario("prose on a CPU", CPU, (NGRAM,), same("prose", length=600)),
    Scenario("slow drafter", DENSE, (SLOW,), same("code")),
    Scenario(
        "load in steps", DENSE, ALL, mixed("code", "prose", "structured", "noise", count=160, length=200),
        load=steps(1, 8, 32, 64, 8, 2),
    ),
    Scenario(
        "load in steps, sparse target", SPARSE, ALL, mixed("code", "prose", count=120, length=200),
        load=steps(1, 4, 16, 32, 4, 1),
    ),
    Scenario("growing context", DENSE, ALL, same("code", count=1, length=9000, prompt=16000)),
    Scenario("throttled clock, code", DENSE, ALL, same("code"), clock=half_way),
    Scenario("throttled clock, noise", SPARSE, ALL, same("noise"), clock=half_way),
    Scenario("easy and hard tokens", DENSE, TELLING, mixed("code", "prose", count=6, length=800)),
    Scenario("easy and hard tokens, sparse target", SPARSE, TELLING, mixed("code", "prose", count=6, length=800)),
    Scenario("easy and hard tokens on a CPU", CPU, TELLING[2:], mixed("structured", "prose", count=6, length=600)),
    Scenario(
        "easy and hard tokens, load in steps", DENSE, TELLING,
        mixed("code", "prose", "structured", "noise", count=160, length=200), load=steps(1, 8, 32, 64, 8, 2),
    ),
)  # fmt: skip
