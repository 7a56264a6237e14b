"""Every policy through every scenario, and what it lost against the best choice in hindsight."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.policy.baselines import Fixed, Hindsight
from bench.policy.scenarios import SCENARIOS, Scenario
from bench.policy.simulate import Run, simulate
from services.target.policy.controller import Controller
from services.target.policy.gated import GatePolicy
from services.target.policy.rules import PolicyRules

LENGTHS = (1, 3, 7, 15)
UNBOUNDED = PolicyRules(probe_share=1.0)
"""The gate as it was first built: nothing bounds what probes may cost."""


@dataclass(frozen=True, slots=True)
class Result:
    """`regret`: the part of its speed by which a policy stays behind the best fixed choice of drafter and length, known
    only afterwards; negative where it is faster than any. `regret_all_knowing`: the same against a choice for every
    round by one that knows all costs and probabilities. `vs_plain`: its speed over that of plain decoding."""

    name: str
    regret: float
    regret_all_knowing: float
    vs_plain: float
    run: Run


def measure(scenarios: Sequence[Scenario] = SCENARIOS) -> Iterator[tuple[str, dict[str, Result]]]:
    """By scenario, results by policy."""
    for scenario in scenarios:
        fixed = {"plain": simulate(scenario, Fixed("none", 0))}
        for drafter in scenario.drafters:
            for length in (each for each in LENGTHS if each <= drafter.most):
                fixed[f"{drafter.mode} {length}"] = simulate(scenario, Fixed(drafter.mode, length))
        runs = {
            "controller": simulate(scenario, Controller(PolicyRules())),
            "gate": simulate(scenario, GatePolicy(PolicyRules())),
            "gate, unbounded": simulate(scenario, GatePolicy(UNBOUNDED)),
        }
        best = max(run.rate for run in fixed.values())
        knowing = max(best, _all_knowing(scenario).rate)
        plain = fixed["plain"].rate
        yield (
            scenario.name,
            {
                name: Result(scenario.name, 1 - run.rate / best, 1 - run.rate / knowing, run.rate / plain, run)
                for name, run in (runs | fixed).items()
            },
        )


def _all_knowing(scenario: Scenario) -> Run:
    texts = scenario.texts()
    same = replace(scenario, texts=lambda: texts)
    return simulate(same, Hindsight(scenario, {text.number: text for text in texts}))
