"""What the policies lose, by simulation: `python -m bench.policy [--json] [--only NAME] [--plots FOLDER]`.

Targets, drafters and texts are scripted (`scenarios.py`), and so is the clock; only the policies are real, and begin
each scenario knowing nothing. It runs for some minutes.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from bench.policy.measure import UNTOLD, Result, measure
from bench.policy.plots import bars, course
from bench.policy.scenarios import SCENARIOS

GOALS = {"regret": 0.03, "vs_plain": 0.98}
"""Of the controller, in every scenario: at most, and at least."""


def document(results: Mapping[str, Mapping[str, Result]]) -> dict[str, object]:
    names = dict.fromkeys(policy for by_policy in results.values() for policy in by_policy)
    policies = {
        policy: [_scenario(by_policy[policy]) for by_policy in results.values() if policy in by_policy]
        for policy in names
    }
    controller = policies["controller"]
    return {
        "goals": GOALS,
        "met": all(
            each["regret"] <= GOALS["regret"] and each["vs_plain_worst"] >= GOALS["vs_plain"] for each in controller
        ),
        "policies": policies,
    }


def _scenario(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "regret": round(result.regret, 4),
        "regret_all_knowing": round(result.regret_all_knowing, 4),
        "vs_plain": round(result.vs_plain, 4),
        "vs_plain_worst": round(result.vs_plain_worst, 4),
        "decision_us": round(result.run.thought_s / result.run.rounds * 1e6, 1),
        "round_ms": round(result.run.seconds / result.run.rounds * 1e3, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")
    parser.add_argument("--only", default="", help="scenarios with this in their name")
    parser.add_argument("--plots", type=Path, help="folder for policy-speed.svg and policy-course.svg")
    options = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if options.only in scenario.name]
    results = {}
    for name, by_policy in measure(chosen):
        results[name] = by_policy
        if not options.json:
            print(_line(name, by_policy), flush=True)
    if options.json:
        print(json.dumps(document(results), indent=1))
    if options.plots:
        (options.plots / "policy-speed.svg").write_text(bars(results))
        steps = results.get("load in steps") or next(iter(results.values()))
        (options.plots / "policy-course.svg").write_text(course(steps["controller"].name, steps))


def _line(name: str, by_policy: Mapping[str, Result]) -> str:
    told = (
        f"{policy} {by_policy[policy].vs_plain:.3f} x plain, regret {by_policy[policy].regret:+.1%}"
        for policy in ("controller", UNTOLD, "gate", "gate, unbounded")
        if policy in by_policy
    )
    return f"{name:<30}{'; '.join(told)}"


if __name__ == "__main__":
    main()
