"""What a drafter says of its drafts is held against what becomes of them."""

import random
from itertools import product

import pytest

from services.target.policy.acceptance import Acceptance, Bias, Prior, Tally
from services.target.policy.calibration import EDGES, Calibration

STATED = (0.02, 0.1, 0.2, 0.4, 0.5, 0.7, 0.8, 0.85, 0.93, 0.96, 0.99, 0.999)  # one in each bin


def learned(rounds, *, bias: Bias | None = None) -> Calibration:
    calibration = Calibration()
    for confidences, won in rounds:
        tried = min(won + 1, len(confidences))
        calibration.learn(confidences, tried, won, bias or Bias(fade=1.0))
    return calibration


def first_chances(calibration: Calibration) -> list[float]:
    return [calibration.chances([stated])[0] for stated in STATED]


def test_there_is_one_stated_confidence_for_each_bin():
    assert [sum(stated >= edge for edge in EDGES) for stated in STATED] == list(range(len(EDGES) + 1))


def test_one_bin_is_what_was_counted_with_four_drafts_that_are_believed_beforehand():
    calibration = learned([([0.5], place % 2) for place in range(32)])  # every other
    fade = 0.999
    tried = sum(fade**age for age in range(32))
    won = sum(fade ** (31 - place) for place in range(32) if place % 2)
    usual = (won + 0.8) / (tried + 1)
    expected = (won + 3 * usual + (0.45 + 0.6) / 2) / (tried + 4)
    [place_factor] = calibration._factors[:1]
    assert 1 - calibration.chances([0.5])[0] == pytest.approx((1 - expected) * place_factor, rel=1e-9)


def test_a_drafter_that_is_always_sure_and_always_wrong_is_not_believed():
    assert learned([([0.99] * 7, 0)] * 100).chances([0.99])[0] < 0.1


def test_a_drafter_that_is_never_sure_and_always_right_is_believed():
    chances = learned([([0.5] * 7, 7)] * 100).chances([0.5] * 7)
    assert min(chances) > 0.95


def test_who_states_more_is_never_believed_less():
    luck = random.Random(3)
    for _ in range(20):
        calibration = learned([([luck.choice(STATED)], luck.randrange(2)) for _ in range(luck.randrange(300))])
        chances = first_chances(calibration)
        assert chances == sorted(chances)


def test_true_chances_are_found_whatever_is_stated():
    luck, truth = random.Random(5), dict(zip(STATED, [0.1 + 0.07 * place for place in range(12)], strict=True))
    rounds = []
    for _ in range(4000):
        confidences = [luck.choice(STATED) for _ in range(3)]
        won = 0
        while won < 3 and luck.random() < truth[confidences[won]]:
            won += 1
        rounds.append((confidences, won))
    found = first_chances(learned(rounds))
    assert max(abs(one - other) for one, other in zip(found, truth.values(), strict=True)) < 0.12


def test_a_sequence_that_misses_more_than_others_is_believed_less():
    bias = Bias(fade=0.985)
    calibration = learned([([0.8] * 4, 4)] * 60)
    for _ in range(10):
        calibration.learn([0.8] * 4, 1, 0, bias)
    assert bias.factor > 1.5
    assert calibration.chances([0.8], bias.factor)[0] < calibration.chances([0.8])[0]


def test_what_was_learned_fades_where_nothing_is_verified_any_more():
    calibration = learned([([0.1], 0)] * 100)
    before = calibration.chances([0.1])[0]
    for _ in range(4000):
        calibration.learn([0.97], 1, 1, Bias(fade=1.0))
    assert calibration.chances([0.1])[0] > before + 0.3


CHANCES = (0.9, 0.7, 0.8, 0.4)  # that a draft is right if those before it are


def outcomes(came: int):
    """How many of so many drafts are right, with the probability of each."""
    for right in range(came + 1):
        chance = 1.0
        for place in range(right):
            chance *= CHANCES[place]
        yield right, chance * (1 - CHANCES[right] if right < came else 1.0)


@pytest.mark.parametrize(("asked", "came"), [(4, 4), (4, 3), (3, 3), (2, 1)])
def test_a_cut_changes_nothing_of_what_acceptance_is_expected_to_be_counted_as(asked, came):
    def counted(length: int) -> list[float]:
        total = [0.0] * (2 * asked)
        for right, chance in outcomes(came):
            tally, kept = Tally(fade=1.0), min(right, length)
            tally.add(asked, kept, CHANCES[length:came] if kept == length < came else ())
            for place, count in enumerate([*tally.tried[:asked], *tally.won[:asked]]):
                total[place] += chance * count
        return total

    for length in range(came):
        assert counted(length) == pytest.approx(counted(came), rel=1e-12)


def test_a_cut_is_neither_luck_nor_misfortune_of_the_sequence():
    """All that a sequence keeps of a round is expected to be the same, whatever is cut."""

    def known(length: int, right: int) -> Acceptance:
        acceptance = Acceptance(Prior())
        acceptance.survival(4)
        kept = min(right, length)
        acceptance.record(4, 4, kept, CHANCES[length:] if kept == length < 4 else ())
        return acceptance

    def expected(length: int) -> list[float]:
        parts = [(chance, known(length, right)) for right, chance in outcomes(4)]
        return [
            sum(chance * value(each) for chance, each in parts)
            for value in (
                lambda each: each.accepted,
                lambda each: each.tried,
                lambda each: each._harder.missed,
                lambda each: each._harder.foretold,
                lambda each: each._drift,
            )
        ]

    for length in range(4):
        assert expected(length) == pytest.approx(expected(4), rel=1e-12)


def test_rates_by_place_stay_true_when_only_sure_drafts_are_verified():
    """Half of the drafts are easy and said to be so; the hard ones are never verified past the calibration."""
    luck, truth = random.Random(11), {0.9: 0.95, 0.2: 0.3}
    prior, calibration, bias = Prior(), Calibration(), Bias(fade=0.985)
    acceptance = Acceptance(prior)
    tried, won = [0] * 3, [0] * 3
    for round in range(6000):
        stated = [luck.choice([0.9, 0.2]) for _ in range(3)]
        right = 0
        while right < 3 and luck.random() < truth[stated[right]]:
            right += 1
        for place in range(min(right + 1, 3)):
            tried[place] += round >= 3000
            won[place] += round >= 3000 and place < right
        sure = next((place for place, each in enumerate(stated) if each < 0.5), 3)
        length = sure if round % 8 else 3
        kept = min(right, length)
        cut = calibration.chances(stated, bias.factor)[length:] if kept == length < 3 else []
        acceptance.record(3, 3, kept, cut)
        calibration.learn(stated, min(kept + 1, length), kept, bias)
    prior.refresh()
    for rate, place in zip(prior.rates, range(3), strict=False):
        assert rate == pytest.approx(won[place] / tried[place], abs=0.08)
    naive = 0.95
    assert all(rate < naive - 0.2 for rate in prior.rates[:3]), "sure drafts alone would look far better"


@pytest.mark.parametrize(("came", "length"), list(product([1, 4], [0, 1])))
def test_what_is_missing_behind_a_cut_still_was_not_kept(came, length):
    tally = Tally(fade=1.0)
    tally.add(5, length, CHANCES[length:came])
    assert tally.won[came] == 0
    alive = 1.0
    for chance in CHANCES[length:came]:
        alive *= chance
    assert tally.tried[came] == pytest.approx(alive)
