"""What the incremental detokeniser shows, put together, is the decode of all ids, and never shows half a character."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.text.detokenize import Detokenizer
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

KINDS = ["byte_level", "llama2", "mistral", "gemma", "unigram", "words", "odd_added_tokens"]
EMOJI = "🎉".encode()
FAMILY = "👩‍👩‍👧"


@pytest.fixture(scope="module")
def tokenizers(kinds):
    odd = json.loads(kinds["byte_level"])
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    for content in ("é", "<｜end▁of▁sentence｜>", "  \n"):  # the first is a byte's letter, the others are not letters
        odd["added_tokens"].append(
            {"id": max(token["id"] for token in odd["added_tokens"]) + 1, "content": content} | added
        )
    data = {**kinds, "odd_added_tokens": json.dumps(odd).encode()}
    return {name: Tokenizer(TokenizerFiles({"tokenizer.json": text})) for name, text in data.items()}


def byte_ids(tokenizer, data):
    """The tokens of single bytes."""
    by_bytes = {tokenizer.token_bytes(id): id for id in reversed(range(tokenizer.vocab_size))}
    by_name = {tokenizer.token(id): id for id in range(tokenizer.vocab_size)}
    return [by_name.get(f"<0x{byte:02X}>", by_bytes.get(bytes([byte]))) for byte in data]


def pieces_of(tokenizer, parts, **options):
    detokenizer = Detokenizer(tokenizer, **options)
    return [*(detokenizer.push(part) for part in parts), detokenizer.flush()]


@pytest.mark.parametrize("skip_special", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_pieces_put_together_are_the_decode_of_all_ids(tokenizers, kind, skip_special, data):
    tokenizer = tokenizers[kind]
    ids = st.integers(0, tokenizer.vocab_size - 1)
    parts = data.draw(st.lists(st.lists(ids, max_size=6), max_size=8))
    pieces = pieces_of(tokenizer, parts, skip_special=skip_special)
    assert "".join(pieces) == tokenizer.decode([id for part in parts for id in part], skip_special=skip_special)


@pytest.mark.parametrize("kind", ["byte_level", "llama2", "gemma"])
@settings(deadline=None)
@given(data=st.binary(max_size=12), cut=st.integers(0, 12))
def test_bytes_that_are_no_text_come_out_as_the_whole_decode_has_them(tokenizers, kind, data, cut):
    tokenizer = tokenizers[kind]
    ids = byte_ids(tokenizer, data)
    pieces = pieces_of(tokenizer, [ids[:cut], ids[cut:], tokenizer.encode("a")[-1:]])
    assert "".join(pieces) == tokenizer.decode([*ids, *tokenizer.encode("a")[-1:]])


@pytest.mark.parametrize("cuts", [(1, 2, 3), (2,), (3,), (1,), (1, 3)])
@pytest.mark.parametrize("kind", ["byte_level", "llama2", "gemma"])
def test_an_emoji_split_anywhere_is_shown_whole(tokenizers, kind, cuts):
    tokenizer = tokenizers[kind]
    ids = byte_ids(tokenizer, EMOJI)
    parts = [ids[start:end] for start, end in zip((0, *cuts), (*cuts, 4), strict=True)]
    pieces = pieces_of(tokenizer, parts)
    assert "".join(pieces) == "🎉"
    assert all(piece in ("", "🎉") for piece in pieces)


@pytest.mark.parametrize("text", [FAMILY, "日本語の文章です。", "Grüße", "e\u0301", " 한국어 "])
@pytest.mark.parametrize("kind", ["byte_level", "llama2", "mistral", "gemma"])
def test_no_piece_of_valid_text_has_a_replacement_mark(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(text)
    pieces = pieces_of(tokenizer, [[id] for id in ids])
    assert "".join(pieces) == tokenizer.decode(ids)
    assert "".join(pieces).strip() == text.strip()
    assert not any("\ufffd" in piece for piece in pieces)


def test_byte_level_text_is_shown_as_soon_as_its_last_byte_came(tokenizers):
    detokenizer = Detokenizer(tokenizers["byte_level"])
    shown = [detokenizer.push([id]) for id in byte_ids(tokenizers["byte_level"], "é🎉a".encode())]
    assert shown == ["", "é", "", "", "", "🎉", "a"]
    assert detokenizer.flush() == ""


@pytest.mark.parametrize("kind", ["byte_level", "llama2", "mistral", "gemma", "unigram"])
def test_an_answer_that_begins_with_a_space_keeps_it(tokenizers, kind):
    tokenizer = tokenizers[kind]
    prompt = tokenizer.encode("the fox")
    answer = tokenizer.encode("the fox the quick")[len(prompt) :]
    pieces = pieces_of(tokenizer, [[id] for id in answer])
    assert "".join(pieces) == tokenizer.decode(answer)
    if kind in ("byte_level", "gemma"):
        assert pieces[0].startswith(" ")


def test_special_tokens_are_skipped_or_shown_as_asked(tokenizers):
    tokenizer = tokenizers["byte_level"]
    end = tokenizer.controls.tokens["<|im_end|>"].id
    ids = [end, *tokenizer.encode("a"), end, *tokenizer.encode(" b")]
    assert "".join(pieces_of(tokenizer, [ids])) == "a b"
    assert "".join(pieces_of(tokenizer, [ids], skip_special=False)) == "<|im_end|>a<|im_end|> b"


def test_an_incomplete_character_at_the_end_is_shown_when_nothing_follows(tokenizers):
    tokenizer = tokenizers["byte_level"]
    ids = byte_ids(tokenizer, EMOJI[:3])
    assert pieces_of(tokenizer, [ids]) == ["", "\ufffd"]
    assert tokenizer.decode(ids) == "\ufffd"
