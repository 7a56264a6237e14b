"""The number of tokens that a text cannot fall below is told without encoding it, and never above the truth."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

KNOWN = ["byte_level", "llama2", "mistral", "gemma"]
BLANKS = " " * 700
HANGUL = "\u1112\u1161\u11ab" * 100
WORDS = ["a", "The", " ", "    ", "\n", "12", "é", "e\u0301", HANGUL[:3], "\u212a", "日本", "🎉", "<think>", "<|a|>"]
texts = st.lists(st.sampled_from(WORDS)).map("".join)


@pytest.fixture(scope="module")
def tokenizer_of(kinds):
    """A tokenizer of a kind, with parts of its file replaced."""

    def make(kind: str, **parts) -> Tokenizer:
        tree = json.loads(kinds[kind]) | parts
        return Tokenizer(TokenizerFiles({"tokenizer.json": json.dumps(tree).encode()}))

    return make


@pytest.fixture(scope="module")
def every(tokenizer_of):
    made = {kind: tokenizer_of(kind) for kind in (*KNOWN, "unigram", "words")}
    return made | {"composing": tokenizer_of("byte_level", normalizer={"type": "NFC"})}


@settings(max_examples=200)
@given(text=texts | st.text(), before=texts)
@example(text=BLANKS, before="")
@example(text=HANGUL, before="")
@example(text="The quick brown fox " * 100, before="\ud800")
def test_no_text_has_fewer_tokens(every, text, before):
    for kind, tokenizer in every.items():
        control = next(iter(tokenizer.controls.tokens.values())).id
        pieces = [before.encode(errors="replace").decode(), control, text, control]
        assert 2 <= tokenizer.fewest(pieces) <= len(tokenizer.encode_pieces(pieces)), kind


@pytest.mark.parametrize("kind", [*KNOWN, "composing"])
def test_a_text_of_nothing_but_the_longest_token_has_exactly_as_many(every, kind):
    tokenizer = every[kind]
    sizes = [len(tokenizer.token_bytes(id)) for id in range(tokenizer.vocab_size)]
    assert tokenizer.fewest.longest == max(sizes)
    assert tokenizer.fewest(["x" * 10 * max(sizes)]) == 10
    assert tokenizer.fewest(["x" * 10 * max(sizes) + "x"]) == 11


def test_a_text_is_counted_as_the_tokenizer_composes_it(every):
    """Three letters of three bytes each are one syllable of three."""
    for kind, size in (("byte_level", 900), ("composing", 300)):
        assert every[kind].fewest([HANGUL]) == -(-size // every[kind].fewest.longest)


def split(behavior: str) -> dict:
    return {"type": "Split", "pattern": {"String": " "}, "behavior": behavior, "invert": False}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("unigram", {}),
        ("words", {}),
        ("byte_level", {"normalizer": {"type": "Lowercase"}}),
        ("byte_level", {"normalizer": {"type": "NFKC"}}),
        ("byte_level", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "StripAccents"}]}}),
        ("byte_level", {"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}}),
        ("byte_level", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split("Removed"), BYTES]}}),
        ("byte_level", {"pre_tokenizer": {"type": "WhitespaceSplit"}}),
    ],
)
def test_nothing_is_told_where_text_may_get_lost(tokenizer_of, kind, parts):
    tokenizer = tokenizer_of(kind, **parts)
    assert tokenizer.fewest.longest is None
    assert tokenizer.fewest(["x" * 10_000]) == 0


def test_nothing_is_told_where_a_byte_has_no_token(kinds, tokenizer_of):
    model = json.loads(kinds["byte_level"])["model"]
    lost = {letter: id for letter, id in model["vocab"].items() if letter != "ÿ"}
    assert tokenizer_of("byte_level", model=model | {"vocab": lost, "merges": []}).fewest.longest is None


def test_nothing_is_told_where_a_word_takes_the_blanks_beside_it(kinds, tokenizer_of):
    added = json.loads(kinds["byte_level"])["added_tokens"]
    greedy = [token | {"rstrip": token["content"] == "<td>"} for token in added]
    tokenizer = tokenizer_of("byte_level", added_tokens=greedy)
    assert len(tokenizer.encode("<td>" + "\t" * 700)) == 1
    assert tokenizer.fewest(["<td>" + "\t" * 700]) == 0


def test_splits_that_keep_what_they_split_at_are_known(tokenizer_of):
    parts = {
        "type": "Sequence",
        "pretokenizers": [split("Isolated"), {"type": "Digits", "individual_digits": True}, BYTES],
    }
    assert tokenizer_of("byte_level", pre_tokenizer=parts).fewest.longest
