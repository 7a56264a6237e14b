"""The order of the rules: explicit mode, eligibility, length, memory and load, speed."""

import pytest
from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.bands import DEFAULT_BANDS, Band
from services.target.policy.decision import View
from services.target.policy.resolve import Speed, resolve
from services.target.request import Speculation

DRAFTERS = {
    "ngram": DrafterDescription(max_draft_tokens=15, default_draft_tokens=7),
    "mtp": DrafterDescription(max_draft_tokens=3, default_draft_tokens=2),
    "dflash": DrafterDescription(max_draft_tokens=15, default_draft_tokens=15, context_length=100),
}
SHORT, LONG = DEFAULT_BANDS
BEHIND = dict.fromkeys(DRAFTERS, "catching_up")
REST = Speed(0, "gate")


def resolved(mode="auto", *, context=50, band=SHORT, hindrances=None, speeds=None, drafters=DRAFTERS, **asked):
    view = View(1, Speculation(mode=mode, **asked), context, 100, hindrances or {})
    decision = resolve(view, band, drafters, speeds or {})
    return decision.mode, decision.reason, decision.max_draft_tokens


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        # explicit modes
        ({"mode": "none"}, ("none", None, 0)),
        ({"mode": "none", "hindrances": BEHIND}, ("none", None, 0)),
        ({"mode": "mtp"}, ("mtp", None, 2)),
        ({"mode": "mtp", "band": Band(0, None, ("ngram",))}, ("mtp", None, 2)),
        ({"mode": "mtp", "band": None}, ("mtp", None, 2)),
        ({"mode": "dflash2"}, ("none", "drafter_not_loaded", 0)),
        ({"mode": "dflash2", "drafters": {}}, ("none", "drafter_not_loaded", 0)),
        # eligibility
        ({}, ("dflash", None, 15)),
        ({"context": 100}, ("mtp", None, 2)),
        ({"mode": "dflash", "context": 99}, ("dflash", None, 15)),
        ({"mode": "dflash", "context": 100}, ("none", "context", 0)),
        ({"mode": "dflash", "context": 100, "hindrances": {"dflash": "memory"}}, ("none", "context", 0)),
        ({"hindrances": BEHIND}, ("none", "catching_up", 0)),
        # length
        ({"band": LONG}, ("mtp", None, 2)),
        ({"band": Band(0, None, ("ngram", "mtp"))}, ("ngram", None, 7)),
        ({"band": Band(0, None, ("dflash2",))}, ("none", "drafter_not_loaded", 0)),
        ({"band": None}, ("none", "context", 0)),
        # memory
        ({"hindrances": {"dflash": "memory"}}, ("mtp", None, 2)),
        ({"hindrances": {"dflash": "memory", "mtp": "memory"}}, ("ngram", None, 7)),
        ({"hindrances": BEHIND | {"dflash": "memory"}}, ("none", "memory", 0)),
        ({"mode": "mtp", "hindrances": {"mtp": "memory"}}, ("none", "memory", 0)),
        # load and speed
        ({"speeds": {"dflash": REST}}, ("mtp", None, 2)),
        ({"speeds": {"dflash": Speed(0, "load"), "mtp": REST, "ngram": REST}}, ("none", "load", 0)),
        ({"speeds": {"dflash": Speed(4, gain=1), "mtp": Speed(2, gain=2)}}, ("mtp", None, 2)),
        ({"speeds": {"dflash": Speed(4, gain=1), "mtp": Speed(2, gain=1)}}, ("dflash", None, 4)),
        ({"mode": "mtp", "speeds": {"mtp": Speed(0, "acceptance")}}, ("none", "acceptance", 0)),
        ({"mode": "mtp", "strict": True, "speeds": {"mtp": Speed(0, "acceptance")}}, ("mtp", None, 2)),
        ({"mode": "mtp", "strict": True, "hindrances": BEHIND}, ("none", "catching_up", 0)),
        # upper bounds
        ({"max_draft_tokens": 3}, ("dflash", None, 3)),
        ({"mode": "mtp", "max_draft_tokens": 9}, ("mtp", None, 3)),
        ({"max_draft_tokens": 3, "speeds": {"dflash": Speed(9)}}, ("dflash", None, 3)),
        ({"mode": "mtp", "speeds": {"mtp": Speed(9)}}, ("mtp", None, 3)),
    ],
)  # fmt: skip
def test_the_first_rule_that_applies_decides(given, decision):
    assert resolved(**given) == decision


def test_a_decision_says_what_could_have_drafted():
    view = View(1, Speculation(), 50, 100, {"mtp": "memory"})
    assert resolve(view, SHORT, DRAFTERS, {}).eligible == ("dflash", "ngram")
