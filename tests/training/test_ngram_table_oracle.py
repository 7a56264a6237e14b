"""The table and its builder against plain dictionaries, and the drafter that goes on with it."""

import json
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from services.drafter.drafting import misfit
from services.drafter.interface import Ask, Draft, Feed, Opening
from services.drafter.messages import Hello
from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import CONFIG, FILE, NgramTable, most_order
from services.errors import BadCheckpoint
from services.training.answer import Answer
from services.training.ngram import count, prune, write

VOCABULARY = 7
IDS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12)
ANSWERS = st.lists(st.builds(Answer, IDS, IDS, st.just(0.0)), min_size=1, max_size=6)


def counts(answers, order):
    """context -> how often each id followed it inside an answer."""
    found = defaultdict(Counter)
    for answer in answers:
        ids = [*answer.prompt_ids, *answer.ids]
        for place in range(len(answer.prompt_ids), len(ids)):
            for n in range(1, min(order - 1, place) + 1):
                found[tuple(ids[place - n : place])][ids[place]] += 1
    return found


def likeliest(found, recent, order):
    """By the longest context that was seen; of equals the lowest id."""
    for n in range(min(order - 1, len(recent)), 0, -1):
        if follows := found.get(tuple(recent[-n:])):
            return min(follows, key=lambda id: (-follows[id], id))
    return None


def continuation(found, recent, order, length):
    text = list(recent)
    while len(text) < len(recent) + length and (id := likeliest(found, text, order)) is not None:
        text.append(id)
    return tuple(text[len(recent) :])


def table(folder, answers, *, order, most_entries=10**6):
    counted = prune(
        count(answers, order=order, vocab_size=VOCABULARY), most_entries=most_entries, vocab_size=VOCABULARY
    )
    write(folder, counted, vocab_size=VOCABULARY, tokenizer_hash="t")
    return NgramTable.read(folder)


@settings(deadline=None)
@given(ANSWERS, IDS, st.integers(2, 5), st.integers(1, 9))
def test_oracle_the_table_says_what_dictionaries_with_back_off_say(tmp_path_factory, answers, recent, order, length):
    made = table(tmp_path_factory.mktemp("table"), answers, order=order)
    ids, chances = made.following(recent, length)
    assert ids == continuation(counts(answers, order), recent, order, length)
    assert len(chances) == len(ids)
    assert all(0 < chance < 1 for chance in chances)


@settings(deadline=None)
@given(ANSWERS, IDS, st.integers(1, 9))
def test_oracle_the_drafter_looks_up_first_and_goes_on_with_the_table(tmp_path_factory, answers, text, length):
    made = table(tmp_path_factory.mktemp("table"), answers, order=4)
    drafts = []
    for drafter in (NgramDrafter(table=made), NgramDrafter()):
        context = drafter.open(Opening(first_id=text[0], max_positions=100))
        drafter.absorb(context, Feed(0, text[1:]))
        drafts += drafter.draft([Ask(context, length)])
    backed, alone = drafts
    expected = alone.ids or continuation(counts(answers, 4), text, 4, length)
    assert backed.ids == expected
    assert len(backed.confidences) == len(expected)


def test_a_chance_is_how_often_the_id_followed():
    often = [Answer([1], [2, 1, 2, 1, 2, 1, 3], 0.0)]
    (bigrams,) = count(often, order=2, vocab_size=VOCABULARY)
    place = bigrams.context_C.tolist().index(1)
    assert [int(each[place]) for each in (bigrams.next_C, bigrams.hits_C, bigrams.seen_C)] == [2, 3, 4]


def test_a_table_that_would_be_too_large_loses_what_was_seen_least(tmp_path):
    answers = [Answer([0], [1, 2, 1, 2, 1, 2], 0.0), Answer([0], [5], 0.0), Answer([6], [3, 4], 0.0)]
    made = table(tmp_path, answers, order=2, most_entries=3)
    assert sum(len(length.contexts) for length in made.lengths) <= 3
    assert made.following([1], 1)[0] == (2,)
    assert made.following([3], 1) == ((), ())


def test_a_large_vocabulary_has_shorter_ngrams():
    assert [most_order(size) for size in (49152, 151936, 3 * 10**6)] == [5, 4, 3]


def test_ids_of_a_large_vocabulary_keep_their_place_in_a_context(tmp_path):
    size = 49152
    ids = [49151, 0, 49150, 49151, 17]
    counted = prune(count([Answer(ids[:1], ids[1:], 0.0)], order=5, vocab_size=size), most_entries=99, vocab_size=size)
    write(tmp_path, counted, vocab_size=size, tokenizer_hash="t")
    assert NgramTable.read(tmp_path).following(ids[:4], 1)[0] == (17,)


def test_text_that_the_table_does_not_know_has_no_draft(tmp_path):
    made = table(tmp_path, [Answer([1], [2, 3], 0.0)], order=3)
    drafter = NgramDrafter(table=made)
    context = drafter.open(Opening(first_id=5, max_positions=9))
    assert drafter.draft([Ask(context, 4)]) == [Draft()]


def test_a_target_with_another_tokenizer_or_vocabulary_is_told_which(tmp_path):
    drafter = NgramDrafter(table=table(tmp_path, [Answer([1], [2, 3], 0.0)], order=3))
    hello = Hello(vocab_size=VOCABULARY, hidden_size=4, weights_fingerprint="any", tokenizer_hash="t")
    assert misfit(drafter.description, hello) is None
    other = misfit(drafter.description, replace(hello, tokenizer_hash="u"))
    assert other == "made for a target of tokenizer t, not u"
    assert "vocabulary 7, not 9" in misfit(drafter.description, replace(hello, vocab_size=9))
    assert misfit(NgramDrafter().description, replace(hello, tokenizer_hash="u", vocab_size=9)) is None


@pytest.fixture
def folder(tmp_path):
    table(tmp_path, [Answer([1], [2, 3, 1, 4], 0.0)], order=3)
    return tmp_path


def edit(folder, **values):
    config = json.loads((folder / CONFIG).read_text()) | values
    (folder / CONFIG).write_text(json.dumps(config))


def spoil(folder, **tensors):
    found = load_file(folder / FILE)
    save_file({name: found[name] for name in found} | tensors, folder / FILE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architectures": ["DFlashDraftModel"]}, "architectures"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"order": 99}, "order is 99"),
        ({"order": 4}, "chance.3 is missing"),
        ({"order": 2}, "chance.2 is no part of a table"),
        ({"vocab_size": 2}, "context.1 is not ascending within 2"),
        ({"tokenizer_hash": None}, "tokenizer_hash"),
    ],
)
def test_a_config_that_lies_is_refused_by_name(folder, values, message):
    edit(folder, **values)
    with pytest.raises(BadCheckpoint, match=message):
        NgramTable.read(folder)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"context.1": torch.tensor([2, 1, 3])}, "context.1 is not ascending"),
        ({"context.1": torch.tensor([1, 2, 7])}, "context.1 is not ascending within 7"),
        ({"next.1": torch.tensor([1, 2], dtype=torch.int32)}, "are not equally long"),
        ({"next.1": torch.tensor([1, 2, 3])}, "next.1 is I64 of shape"),
        ({"next.1": torch.tensor([1, 7, 3], dtype=torch.int32)}, "next.1 has an id that is not in a vocabulary of 7"),
    ],
)
def test_tensors_that_lie_are_refused_by_name(folder, tensors, message):
    spoil(folder, **tensors)
    with pytest.raises(BadCheckpoint, match=message):
        NgramTable.read(folder)


def test_a_damaged_or_missing_file_is_refused_by_name(folder):
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-3])
    with pytest.raises(BadCheckpoint, match="damaged"):
        NgramTable.read(folder)
    (folder / FILE).unlink()
    with pytest.raises(BadCheckpoint, match="does not exist"):
        NgramTable.read(folder)
