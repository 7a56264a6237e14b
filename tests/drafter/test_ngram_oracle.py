"""The incremental index against looking at every earlier place again."""

from hypothesis import example, given
from hypothesis import strategies as st

from services.drafter.interface import Ask, Feed, Opening
from services.drafter.ngram import History, NgramDrafter

# Few distinct ids make every kind of repetition likely.
TEXTS = st.integers(1, 4).flatmap(lambda kinds: st.lists(st.integers(0, kinds), min_size=1, max_size=60))
LONGEST = st.integers(1, 9)


def longest_match(ids, longest):
    """(end, length) of the latest of the longest earlier occurrences of a suffix of `ids`."""
    for length in range(min(longest, len(ids) - 1), 0, -1):
        suffix = ids[len(ids) - length :]
        for end in range(len(ids) - 2, length - 2, -1):
            if ids[end - length + 1 : end + 1] == suffix:
                return end, length
    return None


def continuation(ids, end, count):
    """What follows position `end`, going on with what was proposed itself."""
    text = list(ids)
    for step in range(count):
        text.append(text[end + 1 + step])
    return tuple(text[len(ids) :])


@given(TEXTS, LONGEST)
@example([1, 1, 1, 1], 3)
def test_oracle_every_prefix_finds_the_latest_of_its_longest_matches(ids, longest):
    history = History(longest=longest)
    for count, id in enumerate(ids, 1):
        history.extend([id])
        expected = longest_match(ids[:count], longest)
        found = (history.match_end, history.match_length) if history.match_length else None
        assert found == expected


@given(TEXTS, LONGEST, st.integers(1, 20))
def test_oracle_a_draft_is_what_followed_the_match(ids, longest, count):
    history = History(longest=longest)
    history.extend(ids)
    if match := longest_match(ids, longest):
        assert history.following(count) == continuation(ids, match[0], count)


@given(TEXTS, LONGEST, st.data())
def test_feeding_in_pieces_gives_the_same_as_feeding_at_once(ids, longest, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(ids)))))
    whole, pieces = History(longest=longest), History(longest=longest)
    whole.extend(ids)
    for start, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        pieces.extend(ids[start:end])
    assert pieces.ids == whole.ids
    assert (pieces.match_end, pieces.match_length) == (whole.match_end, whole.match_length)


@given(TEXTS, st.integers(1, 5), st.integers(1, 15))
def test_oracle_the_drafter_speaks_from_its_shortest_match_on(ids, shortest, count):
    drafter = NgramDrafter(shortest=shortest, longest=8)
    context = drafter.open(Opening(first_id=ids[0], max_positions=100))
    drafter.absorb(context, Feed(0, ids[1:]))
    (draft,) = drafter.draft([Ask(context, count)])
    match = longest_match(ids, 8)
    if match is None or match[1] < shortest:
        assert draft.ids == draft.confidences == ()
    else:
        assert draft.ids == continuation(ids, match[0], count)
        assert len(draft.confidences) == count
        assert all(0 < confidence < 1 for confidence in draft.confidences)
