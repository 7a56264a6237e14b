"""Runs one policy through one scenario on a scripted clock."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tandem.v1.drafter_pb2 import DrafterDescription

from bench.policy.scenarios import Scenario
from bench.policy.world import Drafter, Text
from services.target.policy.decision import Cut, Offer, Outcome, Plan, Seen, View
from services.target.request import Speculation

AUTO = Speculation()
JITTER, HICCUP, HICCUP_EVERY = 0.02, 3.0, 300


class Policy(Protocol):
    def decide(self, views: Sequence[View], drafters: Mapping[str, DrafterDescription]) -> Plan: ...

    def cut(self, offers: Sequence[Offer]) -> Cut: ...

    def record(self, seen: Seen) -> None: ...

    def forget(self, key: int) -> None: ...


@dataclass(slots=True)
class Run:
    """`tokens` in `seconds` of the scripted clock; `thought_s` of the processor went into deciding. `speed`: for each
    hundredth of the tokens, tokens a second."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    thought_s: float = 0.0
    speed: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    def add(self, other: "Run") -> None:
        """Count another run too; `speed` stays that of the first."""
        self.tokens, self.seconds = self.tokens + other.tokens, self.seconds + other.seconds
        self.rounds, self.thought_s = self.rounds + other.rounds, self.thought_s + other.thought_s


def simulate(scenario: Scenario, policy: Policy, *, told: bool = True) -> Run:
    """`told`: the policy hears what drafters say of their drafts."""
    waiting = list(scenario.texts())
    total = sum(text.length for text in waiting)
    drafters = {drafter.mode: drafter for drafter in scenario.drafters}
    descriptions = {mode: drafter.description() for mode, drafter in drafters.items()}
    noise, run, running = random.Random(1), Run(), []
    mark = (0, 0.0)
    while waiting or running:
        done = run.tokens / total
        while waiting and len(running) < scenario.load(done):
            running.append(waiting.pop(0))
        views = [View(text.number, AUTO, text.context, text.length - text.done + 1) for text in running]
        began = time.process_time()
        plan = policy.decide(views, descriptions)
        run.thought_s += time.process_time() - began
        offers = _drafts(drafters, running, plan, told=told)
        began = time.process_time()
        cut = policy.cut(list(offers.values())) if offers else Cut(())
        run.thought_s += time.process_time() - began
        seen = _round(scenario, drafters, running, plan, scenario.clock(done), noise, _verified(offers, cut))
        began = time.process_time()
        policy.record(seen)
        run.thought_s += time.process_time() - began
        run.seconds += seen.seconds
        run.rounds += 1
        for text, outcome in zip(running, seen.outcomes, strict=True):
            text.done += outcome.kept
            run.tokens += outcome.kept
            if text.done > text.length:
                policy.forget(text.number)
        running = [text for text in running if text.done <= text.length]
        if run.tokens - mark[0] >= total / 100:
            run.speed.append((run.tokens - mark[0]) / (run.seconds - mark[1]))
            mark = (run.tokens, run.seconds)
    return run


NOTHING = (Offer(0, 0), 0)


def _asked(text: Text, plan: Plan) -> int:
    return min(plan.decisions[text.number].max_draft_tokens, text.length - text.done)


def _drafts(drafters: Mapping[str, Drafter], running: Sequence[Text], plan: Plan, *, told: bool) -> dict[int, Offer]:
    """What comes, by text."""
    offers = {}
    for text in running:
        if (asked := _asked(text, plan)) > 0:
            drafter = drafters[plan.decisions[text.number].mode]
            if came := text.proposed(drafter, asked):
                offers[text.number] = Offer(text.number, came, text.confidences(drafter, came) if told else ())
    return offers


def _verified(offers: Mapping[int, Offer], cut: Cut) -> dict[int, tuple[Offer, int]]:
    return {key: (offer, length) for (key, offer), length in zip(offers.items(), cut.lengths, strict=True)}


def _round(
    scenario: Scenario,
    drafters: Mapping[str, Drafter],
    running: Sequence[Text],
    plan: Plan,
    clock: float,
    noise: random.Random,
    verified: Mapping[int, tuple[Offer, int]],
) -> Seen:
    outcomes, asked_by_mode = [], {}
    for text in running:
        decision = plan.decisions[text.number]
        asked = _asked(text, plan)
        accepted = 0
        offer, drafted = verified.get(text.number, NOTHING)
        if asked > 0:
            accepted = text.accepted(drafters[decision.mode], drafted)
            asked_by_mode.setdefault(decision.mode, []).append(asked)
        kept = min(accepted + 1, text.length - text.done + 1)
        cut, confidences = offer.came - drafted, offer.confidences
        outcomes.append(Outcome(text.number, decision.mode, asked, drafted, accepted, kept, cut, confidences))
    draft_s = sum(drafters[mode].seconds(len(asked), max(asked)) for mode, asked in asked_by_mode.items())
    context = sum(text.context for text in running)
    verify_s = scenario.target.seconds(sum(1 + each.drafted for each in outcomes), context)
    jitter = noise.lognormvariate(0, JITTER) * (HICCUP if noise.randrange(HICCUP_EVERY) == 0 else 1)
    other = noise.lognormvariate(0, JITTER)
    return Seen(outcomes, context, draft_s * clock * other, verify_s * clock * jitter)
