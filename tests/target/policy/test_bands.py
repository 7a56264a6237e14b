"""Length bands: which covers a context, and which are refused."""

import pytest

from services.target.policy.bands import Band, checked, place

LEGAL = ("mtp", "ngram")
LOW, HIGH = Band(0, 100, ("mtp",)), Band(100, None, ("ngram",))


@pytest.mark.parametrize(
    ("context", "current", "band"),
    [
        (0, None, LOW), (99, None, LOW), (100, None, HIGH),
        (100, LOW, LOW), (109, LOW, LOW), (110, LOW, HIGH),
        (100, HIGH, HIGH), (90, HIGH, HIGH), (89, HIGH, LOW),
    ],
)  # fmt: skip
def test_a_sequence_leaves_its_band_a_little_behind_the_border(context, current, band):
    assert place((LOW, HIGH), context, current, 10) == band


def test_lengths_between_bands_have_none():
    assert place((Band(0, 5, LEGAL), Band(9, 12, LEGAL)), 7, None, 0) is None
    assert place((Band(0, 5, LEGAL), Band(9, 12, LEGAL)), 12, None, 0) is None


def test_ascending_bands_are_taken():
    assert checked([LOW, HIGH], LEGAL) == (LOW, HIGH)
    assert checked([], LEGAL) == ()


@pytest.mark.parametrize(
    ("bands", "words"),
    [
        ([HIGH, LOW], "band 2 begins at 0"),
        ([LOW, Band(99, None, LEGAL)], "band 2 begins at 99"),
        ([Band(5, 5, LEGAL)], "band 1 ends at 5"),
        ([Band(0, None, ())], "no mode"),
        ([Band(0, None, ("mtp", "mtp"))], "twice"),
        ([Band(0, None, ("auto",))], "'auto'"),
    ],
)
def test_a_wrong_band_is_named(bands, words):
    with pytest.raises(ValueError, match=words):
        checked(bands, LEGAL)
