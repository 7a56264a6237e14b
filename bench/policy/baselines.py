"""What the policies are held against: fixed choices, and one that knows every cost and every probability."""

from collections.abc import Mapping, Sequence

from tandem.v1.drafter_pb2 import DrafterDescription

from bench.policy.scenarios import Scenario
from bench.policy.world import Text
from services.target.policy.allot import Choice, Costs
from services.target.policy.assign import assign
from services.target.policy.decision import Cut, Decision, Offer, Plan, Seen, View


class Fixed:
    """One drafter and one length, whatever happens."""

    def __init__(self, mode: str, length: int) -> None:
        self._decision = Decision(mode, None, length)

    def decide(self, views: Sequence[View], drafters: Mapping[str, DrafterDescription]) -> Plan:
        return Plan({view.key: self._decision for view in views})

    def cut(self, offers: Sequence[Offer]) -> Cut:
        return Cut([offer.came for offer in offers])

    def record(self, seen: Seen) -> None:
        pass

    def forget(self, key: int) -> None:
        pass


class Hindsight(Fixed):
    """The best expectation in every round, with true costs and true probabilities: nobody can know that much."""

    def __init__(self, scenario: Scenario, texts: Mapping[int, Text]) -> None:
        self._scenario, self._texts = scenario, texts

    def decide(self, views: Sequence[View], drafters: Mapping[str, DrafterDescription]) -> Plan:
        texts = [self._texts[view.key] for view in views]
        context = sum(text.context for text in texts)
        known = {drafter.mode: drafter for drafter in self._scenario.drafters}
        options = [
            {
                drafter.mode: Choice(
                    drafter.mode,
                    text.survival(drafter, min(drafter.most, text.length - text.done)),
                    drafter.proposes.get(text.workload(text.done), 1.0),
                )
                for drafter in known.values()
            }
            for text in texts
        ]
        costs = Costs(
            lambda rows: self._scenario.target.seconds(rows, context),
            lambda mode, size, length: known[mode].seconds(2 ** (size - 1), length),
        )
        ways, best = assign(options, costs)
        return Plan(
            {
                view.key: Decision(way.mode, None, length) if way and length else Decision("none")
                for view, way, length in zip(views, ways, best.lengths, strict=True)
            }
        )
