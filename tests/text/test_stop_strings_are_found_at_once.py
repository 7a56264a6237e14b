import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import InvalidRequest
from services.text.stops import StopMatch, StopMatcher

LETTERS = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=5)


def naive(strings, text):
    """All matches in the whole text; the one that ends first, of those the one that begins first."""
    found = [
        (start + len(string), start, string)
        for string in strings
        for start in range(len(text))
        if text.startswith(string, start)
    ]
    return StopMatch(min(found)[2], min(found)[1]) if found else None


def push_all(matcher, pieces):
    return [matcher.push(piece) for piece in pieces]


@settings(deadline=None)
@given(strings=STOPS, pieces=st.lists(LETTERS, max_size=8))
def test_the_first_match_is_that_of_a_search_in_the_whole_text(strings, pieces):
    matcher = StopMatcher(strings)
    for end in range(len(pieces)):
        so_far = "".join(pieces[: end + 1])
        first = next((match for at in range(len(so_far) + 1) if (match := naive(strings, so_far[:at]))), None)
        assert matcher.push(pieces[end]) == first == naive(strings, so_far)


@settings(deadline=None)
@given(strings=STOPS, pieces=st.lists(LETTERS, max_size=8))
def test_what_is_held_is_the_longest_end_that_may_begin_a_stop(strings, pieces):
    matcher = StopMatcher(strings)
    text = ""
    for piece in pieces:
        text += piece
        if matcher.push(piece):
            assert matcher.held == 0
            return
        begins = [size for size in range(len(text) + 1) if any(s.startswith(text[len(text) - size :]) for s in strings)]
        assert matcher.held == max(begins, default=0)


@pytest.mark.parametrize("size", [1, 5])
def test_a_stop_in_small_pieces_is_found_before_any_of_it_is_free(size):
    text, stop = "x y END-OF-LIST", "END-OF-LIST"
    matcher, free = StopMatcher([stop]), 0
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        if match := matcher.push(piece):
            assert match == StopMatch(stop, 4)
            assert free <= 4
            return
        free = start + len(piece) - matcher.held
    pytest.fail("not found")


def test_a_false_start_is_let_go():
    matcher = StopMatcher(["END-OF-LIST"])
    assert matcher.push("x y END-OF-") is None
    assert matcher.held == len("END-OF-")
    assert matcher.push("DAY") is None
    assert matcher.held == 0


@pytest.mark.parametrize(
    ("strings", "text", "match"),
    [
        (["c", "abcd"], "abcd", StopMatch("c", 2)),  # begins later, ends first
        (["bc", "abc"], "abc", StopMatch("abc", 0)),  # ends with it, began before
        (["bcx", "abcd", "c"], "abcx", StopMatch("c", 2)),
        (["aab"], "aaab", StopMatch("aab", 1)),
        (["she", "hers"], "ushers", StopMatch("she", 1)),
        (["\n\n"], "a\n \n\n", StopMatch("\n\n", 3)),
        ([" "], "a b", StopMatch(" ", 1)),
        (["🎉"], "é🎉", StopMatch("🎉", 1)),
        (["x", "x"], "x", StopMatch("x", 0)),
    ],
)
def test_of_overlapping_stops_the_one_that_ends_first_wins(strings, text, match):
    assert StopMatcher(strings).push(text) == match
    assert push_all(StopMatcher(strings), text)[-1] == match


def test_the_first_match_is_final():
    matcher = StopMatcher(["b", "c"])
    assert push_all(matcher, ["ab", "c", ""]) == [StopMatch("b", 1)] * 3


def test_no_stops_match_nothing_and_hold_nothing():
    matcher = StopMatcher([])
    assert matcher.push("anything") is None
    assert matcher.held == 0


def test_an_empty_stop_is_refused():
    with pytest.raises(InvalidRequest, match="empty"):
        StopMatcher(["a", ""])
