"""Every policy through every scenario, and what it lost against the best choice in hindsight."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.policy.baselines import Fixed, Hindsight
from bench.policy.scenarios import SCENARIOS, Scenario
from bench.policy.simulate import Policy, Run, simulate
from bench.policy.world import Text
from services.target.policy.controller import Controller
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules

LENGTHS = (1, 3, 7, 15)
LUCKS = 3
"""Times that a scenario is run, each time with other luck and a policy that knows nothing."""

UNBOUNDED = PolicyRules(probe_share=1.0)
"""The gate as it was first built: nothing bounds what probes may cost."""

ADAPTIVE: Mapping[str, Callable[[], Policy]] = {
    "controller": lambda: Controller(PolicyRules()),
    "gate": lambda: GatePolicy(PolicyRules()),
    "gate, unbounded": lambda: GatePolicy(UNBOUNDED),
}

UNTOLD = "controller, without confidences"
"""The same where drafters say nothing of their drafts, so that none is cut."""


@dataclass(frozen=True, slots=True)
class Result:
    """`regret`: the part of its speed by which a policy stays behind the best fixed choice of drafter and length, known
    only afterwards; negative where it is faster than any. `regret_all_knowing`: the same against a choice for every
    round by one that knows all costs and probabilities. `vs_plain`: its speed over that of plain decoding, and
    `vs_plain_worst` that of the unluckiest run."""

    name: str
    regret: float
    regret_all_knowing: float
    vs_plain: float
    vs_plain_worst: float
    run: Run


def measure(scenarios: Sequence[Scenario] = SCENARIOS) -> Iterator[tuple[str, dict[str, Result]]]:
    """By scenario, results by policy."""
    for scenario in scenarios:
        lucky = [_with_luck(scenario, luck) for luck in range(LUCKS)]
        fixed = {"plain": [simulate(each, Fixed("none", 0)) for each in lucky]}
        for drafter in scenario.drafters:
            for length in (each for each in LENGTHS if each <= drafter.most):
                fixed[f"{drafter.mode} {length}"] = [simulate(each, Fixed(drafter.mode, length)) for each in lucky]
        runs = {name: [simulate(each, build()) for each in lucky] for name, build in ADAPTIVE.items()}
        if any(drafter.spread for drafter in scenario.drafters):
            runs[UNTOLD] = [simulate(each, Controller(PolicyRules()), told=False) for each in lucky]
        best = max(_rate(each) for each in fixed.values())
        knowing = max(best, _rate([_all_knowing(each) for each in lucky]))
        yield (
            scenario.name,
            {
                name: _result(scenario.name, each, fixed["plain"], best, knowing)
                for name, each in (runs | fixed).items()
            },
        )


def _result(name: str, runs: Sequence[Run], plain: Sequence[Run], best: float, knowing: float) -> Result:
    rate = _rate(runs)
    worst = min(run.rate / other.rate for run, other in zip(runs, plain, strict=True))
    return Result(name, 1 - rate / best, 1 - rate / knowing, rate / _rate(plain), worst, _sum(runs))


def _rate(runs: Sequence[Run]) -> float:
    return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)


def _sum(runs: Sequence[Run]) -> Run:
    total = replace(runs[0])
    for run in runs[1:]:
        total.add(run)
    return total


def _with_luck(scenario: Scenario, luck: int) -> Scenario:
    def texts() -> Sequence[Text]:
        found = scenario.texts()
        for text in found:
            text.number += 1000 * luck
        return found

    return replace(scenario, texts=texts)


def _all_knowing(scenario: Scenario) -> Run:
    texts = scenario.texts()
    same = replace(scenario, texts=lambda: texts)
    return simulate(same, Hindsight(scenario, {text.number: text for text in texts}))
