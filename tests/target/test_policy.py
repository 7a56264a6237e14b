"""Which drafter a sequence gets, given what keeps drafters from drafting for it."""

import pytest
from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy import Decision, decide
from services.target.request import Speculation

DRAFTERS = {
    "ngram": DrafterDescription(max_draft_tokens=15, default_draft_tokens=7),
    "mtp": DrafterDescription(max_draft_tokens=3, default_draft_tokens=2),
    "dflash": DrafterDescription(max_draft_tokens=15, default_draft_tokens=15, context_length=100),
}
BEHIND = dict.fromkeys(DRAFTERS, "catching_up")


@pytest.mark.parametrize(
    ("mode", "hindrances", "decision"),
    [
        ("auto", {}, Decision("dflash", None, 15)),
        ("auto", {"dflash": "memory"}, Decision("mtp", None, 2)),
        ("auto", {"dflash": "memory", "mtp": "memory"}, Decision("ngram", None, 7)),
        ("auto", BEHIND, Decision("none", "catching_up")),
        ("auto", BEHIND | {"dflash": "memory"}, Decision("none", "memory")),
        ("mtp", {"dflash": "memory"}, Decision("mtp", None, 2)),
        ("mtp", {"mtp": "memory"}, Decision("none", "memory")),
        ("mtp", {"mtp": "drafter_not_loaded"}, Decision("none", "drafter_not_loaded")),
        ("dflash2", {}, Decision("none", "drafter_not_loaded")),
        ("none", BEHIND, Decision("none")),
    ],
)
def test_a_hindered_drafter_is_passed_over_and_an_explicit_mode_says_why(mode, hindrances, decision):
    assert decide(Speculation(mode=mode), 50, DRAFTERS, hindrances) == decision


def test_a_context_that_is_too_long_is_the_reason_before_any_other():
    assert decide(Speculation(mode="dflash"), 100, DRAFTERS, {"dflash": "memory"}) == Decision("none", "context")
