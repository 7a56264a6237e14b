"""Which drafters a sequence that begins is not fed to, since hardly anybody used them of late."""

import pytest
from tandem.v1.drafter_pb2 import DrafterDescription

from services.target.policy.bands import Band
from services.target.policy.controller import Controller
from services.target.policy.decision import View
from services.target.policy.rules import PolicyRules
from services.target.policy.usage import SCOUT, Usage
from services.target.request import Speculation
from tests.target.policy.worlds import World

SHORT, LONG = Band(0, 1000, ("dflash", "mtp", "ngram")), Band(1000, None, ("mtp", "ngram"))
DRAFTERS = {
    "dflash": DrafterDescription(tap_layers=[1, 2]),
    "mtp": DrafterDescription(needs_final_hidden=True),
    "ngram": DrafterDescription(),
}
AUTO = Speculation()


def left_out(usage, lengths=range(10, 100), asked=AUTO, sequences=SCOUT):
    """What each of the next sequences leaves out."""
    return [set(usage.left_out(asked, (SHORT, LONG), lengths, DRAFTERS)) for _ in range(sequences)]


def used(*modes, rounds, band=SHORT):
    usage = Usage()
    for number in range(rounds):
        usage.record(band, band.modes, modes[number % len(modes)])
    return usage


def test_every_drafter_is_used_until_it_is_seen_that_it_is_not():
    assert left_out(Usage()) == [set()] * SCOUT
    assert left_out(used("ngram", rounds=200)) == [set()] * SCOUT
    assert {"mtp"} not in left_out(used("mtp", "ngram", "ngram", "ngram", rounds=2000))


def test_what_nobody_used_is_left_out_by_all_but_a_scout():
    assert left_out(used("mtp", rounds=400), sequences=2 * SCOUT) == ([{"dflash"}] * (SCOUT - 1) + [set()]) * 2
    assert left_out(used(None, rounds=400))[0] == {"dflash", "mtp"}, "plain decoding was better"


def test_a_drafter_that_reads_token_ids_alone_costs_nothing_to_feed():
    assert all("ngram" not in each for each in left_out(used("mtp", rounds=2000)))


def test_what_a_scout_uses_is_fed_to_all_again():
    usage = used("ngram", rounds=2000)
    for _ in range(20):
        usage.record(SHORT, SHORT.modes, "mtp")
    assert left_out(usage)[0] == {"dflash"}


def test_what_wins_in_a_band_that_can_be_reached_is_fed_from_the_start():
    usage = used("ngram", rounds=2000)
    assert left_out(usage, range(10, 1000))[0] == {"dflash", "mtp"}
    assert left_out(usage, range(10, 1001))[0] == {"dflash"}, "nobody was that long yet"
    for _ in range(2000):
        usage.record(LONG, LONG.modes, "ngram")
    assert left_out(usage, range(10, 1001))[0] == {"dflash", "mtp"}


def requests(it, count, first, rounds=60, asked=AUTO):
    """Sequences one after the other, hindered where they leave something out; for each, the modes that it ran."""
    ran = []
    for key in range(first, first + count):
        without = it.policy.left_out(View(key, asked, 100, rounds), DRAFTERS)
        modes = set()
        for left in range(rounds, 1, -1):
            view = View(key, asked, 100, left, hindrances=dict.fromkeys(without, "gate"))
            modes |= {each.mode for each in it.round([view]).values()}
        it.policy.forget(key)
        ran.append((frozenset(without), modes))
    return ran


def test_what_no_band_that_can_be_reached_names_is_left_out_by_all():
    assert left_out(Usage(), range(1000, 2000)) == [{"dflash"}] * SCOUT


def losing_mtp(right):
    """Of its drafts `right` are right, by mode; of the n-gram drafter's 5."""
    rules = PolicyRules(bands=(SHORT, LONG))
    draft_s = {"mtp": 0.002, "ngram": 0.001}
    return World(Controller(rules), lambda mode, key, round: right.get(mode, 5 * (mode == "ngram")), draft_s)


@pytest.mark.parametrize(
    "asked",
    [Speculation(mode="mtp"), Speculation(strict=True), Speculation(bands=(SHORT,)), Speculation(mode="none")],
    ids=["mode", "strict", "bands", "none"],
)
def test_who_says_what_is_to_draft_leaves_nothing_out_and_teaches_nothing(asked):
    assert left_out(used("ngram", rounds=2000), asked=asked) == [set()] * SCOUT
    it = losing_mtp({})
    requests(it, 40, 0, asked=asked)
    assert it.policy.left_out(View(1000, AUTO, 100, 60), DRAFTERS) == frozenset()


def test_a_drafter_that_comes_back_is_used_until_seen_otherwise():
    usage = used("ngram", rounds=2000)
    usage.forget("mtp")
    assert left_out(usage)[0] == {"dflash"}


def test_the_controller_leaves_out_what_loses_and_finds_it_again_when_it_wins():
    better = {}
    it = losing_mtp(better)
    late = requests(it, 40, 0)[-SCOUT:]
    assert [without for without, _ in late].count(frozenset()) == 1
    assert all("mtp" not in modes for without, modes in late if without)
    better |= {"mtp": 12}
    assert all("mtp" in modes for _, modes in requests(it, 10 * SCOUT, 100)[-SCOUT:])
