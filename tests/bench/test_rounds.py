"""A profile is made of the events of a target and the messages of a client, on one clock."""

import pytest

from bench.client import Answer
from bench.profiled import Event
from bench.rounds import PARTS, profile

ROUND = 0.040


def events_of(round: int, end: float, *, drafts: int) -> list[Event]:
    """A round of 40 ms that ends at `end`, drafting unless `drafts` is 0."""
    draft = [Event("draft", 0.001, end - 0.037), Event("wait", 0.003, end - 0.037)] if drafts else []
    return [
        Event("emit", 0.0002, end - 0.039),
        *draft,
        Event("verify", 0.030, end - 0.005, 1 + drafts),
        Event("sample", 0.002, end - 0.003),
        Event("step", 0.034, end - 0.001),
        Event("put", 0.0, end, 1 + drafts),
    ]


def scripted(rounds: int, drafts: int, merged: bool = False) -> tuple[list[Event], Answer]:
    """Every message arrives 5 ms after its emission; `merged` lets the second one come with the third."""
    sent = 100.0
    ends = [sent + ROUND * (1 + number) for number in range(rounds)]
    events = [event for number, end in enumerate(ends) for event in events_of(number, end, drafts=drafts)]
    counts, arrivals = [1 + drafts] * rounds, [end + 0.005 - sent for end in ends]
    if merged:
        counts[1:3], arrivals[1:3] = [2 * (1 + drafts)], arrivals[2:3]
    foreign = [Event("verify", 9.0, sent - 1, 8), Event("put", 9.0, sent + 99, 8)]
    return [foreign[0], *events, foreign[1]], Answer((0,) * sum(counts), tuple(counts), tuple(arrivals), sent)


@pytest.mark.parametrize("merged", [False, True])
def test_the_parts_of_a_round_add_up_to_it(merged):
    events, answer = scripted(5, drafts=3, merged=merged)
    found = profile(events, [answer], drafting=True)
    expected = {"draft": 1, "hop": 2, "verify": 30, "sample": 2, "settle": 2, "other": 3, "round": 40}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert sum(found[name] for name in PARTS) == pytest.approx(found["round"])
    assert found["outside"] == pytest.approx(5)
    assert found["client"] == pytest.approx(40)
    assert found["emit"] == pytest.approx(0.2)


def test_rounds_without_drafts_are_no_profile_of_drafting():
    events, answer = scripted(4, drafts=0)
    with pytest.raises(SystemExit, match="no round verified a draft"):
        profile(events, [answer], drafting=True)


def test_plain_rounds_have_no_draft():
    events, answer = scripted(4, drafts=0)
    found = profile(events, [answer], drafting=False)
    assert (found["draft"], found["hop"]) == (0, 0)
    assert found["other"] == pytest.approx(6)
