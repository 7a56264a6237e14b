import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from services.errors import BadCheckpoint, InvalidRequest
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "  two  spaces ",
    "Hello, world!",
    "日本語",
    "👩‍👩‍👧 e\u0301 é",
    "a\n\n\tb\r\n",
    "<td>12345</td>",
    "    x",
    "\u00a0",
]
LOSSLESS = ["byte_level", "llama2", "gemma"]  # `mistral` does not tell a text from the same behind one space


@pytest.fixture(scope="module")
def tokenizers(kinds):
    return {name: Tokenizer(TokenizerFiles({"tokenizer.json": data})) for name, data in kinds.items()}


@pytest.mark.parametrize("kind", LOSSLESS)
@settings(deadline=None)
@given(text=st.text())
def test_decoding_what_was_encoded_gives_the_text(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["byte_level", "llama2", "mistral", "gemma", "unigram", "words"])
@settings(deadline=None)
@given(text=st.text(st.sampled_from("</s>tofx| <s>im_endar") | st.characters(exclude_categories=["Cs"])))
def test_no_text_becomes_a_special_token(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    unknown = {tokenizer.encode("\x00")[-1]} if kind in ("unigram", "words") else set()
    assert tokenizer.special_ids.isdisjoint(set(tokenizer.encode(text)) - unknown)


@pytest.mark.parametrize("kind", ["byte_level", "llama2", "mistral", "gemma", "unigram", "words"])
def test_the_text_of_a_special_token_is_encoded_like_any_other(tokenizers, kind):
    tokenizer = tokenizers[kind]
    unknown = {"<unk>", "[UNK]"}
    for special in (tokenizer.token(id) for id in tokenizer.special_ids):
        for text in (special, f"a{special}b", f"a {special} b", special * 3):
            ids = tokenizer.encode(text)
            assert special in unknown or tokenizer.special_ids.isdisjoint(ids) or kind == "words"
            if kind in LOSSLESS:
                assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte_level", "llama2", "mistral", "gemma", "unigram"])
def test_ordinary_text_has_the_ids_of_the_oracle(tmp_path, kinds, tokenizers, kind, text):
    (tmp_path / "tokenizer.json").write_bytes(kinds[kind])
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    oracle = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizers[kind].encode(text) == oracle.encode(text, add_special_tokens=False)


def test_the_embedded_tokenizer_agrees_with_the_oracle(embedded_model):
    oracle = AutoTokenizer.from_pretrained(embedded_model)
    tokenizer = Tokenizer(TokenizerFiles.read(embedded_model))
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_id) == (49152, 1, 2)
    assert tokenizer.stop_ids == {2}
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == oracle.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == oracle.decode(ids) == text


def test_neither_truncation_nor_padding_of_the_file_applies(kinds):
    tree = json.loads(kinds["byte_level"])
    tree["truncation"] = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    tree["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    tokenizer = Tokenizer(TokenizerFiles({"tokenizer.json": json.dumps(tree).encode()}))
    text = "The quick brown fox jumps over the lazy dog."
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("") == []


def test_half_a_surrogate_pair_is_refused(tokenizers):
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        tokenizers["byte_level"].encode("a\ud800b")


def test_bytes_of_tokens_put_together_are_the_text(tokenizers):
    text = " Grüße 🎉 <|im_end|>"
    for kind in ("byte_level", "gemma"):
        tokenizer = tokenizers[kind]
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()
    assert tokenizers["llama2"].token_bytes(3 + 0xE2) == b"\xe2"
    assert tokenizers["llama2"].token_text(3 + 0xE2) == "\ufffd"
    assert (
        tokenizers["byte_level"].token_text(tokenizers["byte_level"].controls.tokens["<|im_end|>"].id) == "<|im_end|>"
    )
    assert tokenizers["byte_level"].token_bytes(10**6) == b""


def test_ids_that_are_no_token_decode_to_nothing(tokenizers):
    tokenizer = tokenizers["byte_level"]
    assert tokenizer.decode([-1, tokenizer.vocab_size, 10**9, *tokenizer.encode("a")]) == "a"


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({"generation_config": {"eos_token_id": 1}}, {1}),
        ({"generation_config": {"eos_token_id": [1, 2]}}, {1, 2}),
        ({"generation_config": {"eos_token_id": None}, "config": {"eos_token_id": [2]}}, {2}),
        ({"config": {"eos_token_id": None, "text_config": {"eos_token_id": 0}}}, {0}),
        ({"generation_config": {"eos_token_id": 2}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, {1, 2}),
        ({"tokenizer_config": {"eos_token": {"content": "<|im_end|>", "special": True}}}, {1}),
        ({"tokenizer_config": {"eos_token": None}, "special_tokens_map": {"eos_token": "<|im_end|>"}}, {1}),
        ({"tokenizer_config": {"eos_token": None}}, set()),
        ({"tokenizer_config": {"eos_token": "<nowhere>"}}, set()),
    ],
)
def test_every_file_that_may_name_an_end_token_is_heard(files_of, settings, stops):
    assert Tokenizer(files_of("byte_level", **settings)).stop_ids == stops


@pytest.mark.parametrize("value", ["2", True, -1, [2, None], {"id": 2}])
def test_an_end_token_that_is_no_id_is_a_bad_checkpoint(files_of, value):
    with pytest.raises(BadCheckpoint, match=r"generation_config\.json: eos_token_id"):
        Tokenizer(files_of("byte_level", generation_config={"eos_token_id": value}))


def test_a_token_that_only_the_settings_call_special_is_special(files_of):
    tokenizer = Tokenizer(
        files_of("byte_level", tokenizer_config={"eos_token": "Ġthe", "bos_token": {"content": "<td>"}})
    )
    assert {tokenizer.eos_id, tokenizer.bos_id} <= tokenizer.special_ids
    assert tokenizer.decode([tokenizer.eos_id, *tokenizer.encode("a")]) == "a"


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"model": 1}'])
def test_a_broken_tokenizer_file_is_a_bad_checkpoint(data):
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.json"):
        Tokenizer(TokenizerFiles({"tokenizer.json": data}))


def test_a_decoder_that_cannot_stream_is_a_bad_checkpoint(kinds):
    tree = json.loads(kinds["byte_level"])
    tree["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    with pytest.raises(BadCheckpoint, match="WordPiece"):
        Tokenizer(TokenizerFiles({"tokenizer.json": json.dumps(tree).encode()}))


def test_a_folder_without_its_files_says_which(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"lacks tokenizer\.json"):
        TokenizerFiles.read(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(BadCheckpoint, match=r"config\.json is not JSON"):
        TokenizerFiles.read(tmp_path)


def test_the_hash_tells_different_files_apart(files_of):
    plain, other = files_of("byte_level"), files_of("byte_level", config={})
    assert plain.hash == files_of("byte_level").hash != other.hash
    assert TokenizerFiles({"a": b"bc"}).hash != TokenizerFiles({"ab": b"c"}).hash
