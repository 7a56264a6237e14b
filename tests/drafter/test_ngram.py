import pytest

from services.drafter.interface import Ask, Draft, Feed, Opening
from services.drafter.ngram import History, NgramDrafter


def draft_after(ids, count=6, **settings):
    drafter = NgramDrafter(**settings)
    context = drafter.open(Opening(first_id=ids[0], max_positions=len(ids)))
    drafter.absorb(context, Feed(0, ids[1:]))
    assert context.fed == len(ids) - 1
    return drafter.draft([Ask(context, count)])[0]


def test_one_id_is_no_history_to_draft_from():
    assert draft_after([5]) == Draft()


def test_new_text_has_no_draft():
    assert draft_after([1, 2, 3, 4, 5, 6]) == Draft()


def test_a_match_shorter_than_asked_for_has_no_draft():
    text = [1, 2, 9, 2]
    assert draft_after(text, shortest=2) == Draft()
    assert draft_after(text, shortest=1).ids[:2] == (9, 2)


def test_a_longer_match_wins_over_a_later_one():
    assert draft_after([1, 2, 3, 7, 9, 2, 3, 8, 1, 2, 3], count=1).ids == (7,)


def test_of_equally_long_matches_the_latest_wins():
    assert draft_after([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], count=1).ids == (8,)


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_periodic_text_goes_on_for_as_long_as_asked(period):
    text = [index % period for index in range(10)]
    assert draft_after(text, count=15).ids == tuple(index % period for index in range(10, 25))


def test_a_longer_match_is_more_confident():
    short = draft_after([1, 2, 7, 1, 2], count=1)
    long = draft_after([1, 2, 3, 4, 7, 1, 2, 3, 4], count=1)
    assert short.confidences < long.confidences


def test_a_batch_is_answered_in_order_and_sequences_do_not_mix():
    drafter = NgramDrafter()
    contexts = [drafter.open(Opening(first_id=10 * s, max_positions=99)) for s in range(4)]
    for s, context in enumerate(contexts):
        drafter.absorb(context, Feed(0, [10 * s + 1, 10 * s + 2, 10 * s, 10 * s + 1]))
    drafts = drafter.draft([Ask(context, 1) for context in reversed(contexts)])
    assert [draft.ids for draft in drafts] == [(32,), (22,), (12,), (2,)]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param([7] * 4000, id="constant"),
        pytest.param([index % 7 for index in range(4000)], id="periodic"),
        pytest.param([(index * index) % 4001 for index in range(4000)], id="varied"),
        pytest.param([(index * index) % 2003 for index in range(2000)] * 2, id="repeated"),
    ],
)
def test_the_index_holds_a_bounded_number_of_nodes_for_each_token(text):
    history = History(longest=8)
    history.extend(text)
    assert len(history._ends) <= 9 * len(text) + 1
    before = len(history._ends)
    history.extend(text[-1:] * 1000)  # what repeats costs nothing
    assert len(history._ends) - before <= 2 * 8
