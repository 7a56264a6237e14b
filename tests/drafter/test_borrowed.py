"""What drafters use of their target's folder: the right matrices, whatever form it has, or a refusal that names why."""

import json

import pytest
import torch

from services.drafter.borrowed import Borrowed
from services.engine.engine import Engine
from services.errors import BadCheckpoint, BadConfig
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import write
from tests.engine.tiny import CONFIG
from tests.engine.tiny import write as write_llama

ROWS, SIZE = 40, 16
EMBEDDING, HEAD = torch.randn(ROWS, SIZE), torch.randn(ROWS, SIZE)
HIDDEN = torch.randn(5, SIZE)
PLAIN = {"vocab_size": ROWS, "hidden_size": SIZE, "num_hidden_layers": 3}


def borrowed(folder, values=PLAIN, named=None, *, vocab_size=ROWS, draft_vocab=None):
    names = {"model.embed_tokens.weight": EMBEDDING, "lm_head.weight": HEAD}
    write(folder, values, names if named is None else named)
    return Borrowed.read(folder, dtype=torch.float32, vocab_size=vocab_size, draft_vocab=draft_vocab)


def lends(target, head):
    torch.testing.assert_close(target.embedding_VH, EMBEDDING)
    torch.testing.assert_close(target.head(HIDDEN), HIDDEN @ head.T)


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "model.language_model.lm_head.weight"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_names_and_config_of_text_models_and_of_those_that_see(tmp_path, embedding, head, nested):
    values = {"text_config": PLAIN, "vision_config": {"hidden_size": 99}} if nested else PLAIN
    target = borrowed(tmp_path, values, {embedding: EMBEDDING, head: HEAD, "model.layers.0.other": torch.zeros(1)})
    lends(target, HEAD)
    assert (target.hidden_size, target.layers, target.vocab_size) == (SIZE, 3, ROWS)


def test_a_tied_target_lends_its_embedding_as_head(tmp_path):
    named = {"model.embed_tokens.weight": EMBEDDING}
    lends(borrowed(tmp_path, PLAIN | {"tie_word_embeddings": True}, named), EMBEDDING)


def test_an_untied_target_without_a_head_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"lm_head\.weight"):
        borrowed(tmp_path, PLAIN, {"model.embed_tokens.weight": EMBEDDING})


def test_an_embedding_of_unknown_name_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"model\.embed_tokens\.weight"):
        borrowed(tmp_path, PLAIN, {"wte.weight": EMBEDDING, "lm_head.weight": HEAD})


@pytest.mark.parametrize(
    "changed",
    [
        {"vocab_size": ROWS + 1},
        {"hidden_size": SIZE + 1},
        {"num_hidden_layers": None},
        {"quantization_config": {"quant_method": "fp8"}},
        {"final_logit_softcapping": 30.0},
        {"embedding_multiplier": 12.0},
        {"logits_scaling": 8.0},
        {"model_type": "gemma3_text"},
    ],
    ids=str,
)
def test_a_target_whose_rows_do_not_say_what_it_says_is_refused(tmp_path, changed):
    (key,) = changed
    with pytest.raises(BadCheckpoint, match=key if key not in ("vocab_size", "hidden_size") else "has shape"):
        borrowed(tmp_path, PLAIN | changed)


def test_a_tokenizer_with_more_ids_than_rows_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match="41 ids"):
        borrowed(tmp_path, vocab_size=41)


def test_padded_rows_are_embedded_but_never_drafted(tmp_path):
    """A mask may be such a row: some tokenizers end just before it."""
    target = borrowed(tmp_path, vocab_size=30)
    assert len(target.embedding_VH) == ROWS
    assert target.head(HIDDEN).shape == (5, 30)


def test_the_fingerprint_is_the_one_that_the_target_sends(tmp_path):
    write_llama(tmp_path)
    target = Borrowed.read(tmp_path, dtype=torch.float32, vocab_size=CONFIG["vocab_size"])
    engine = Engine.load(tmp_path, dtype=torch.float32, cache_rows=64)
    assert (target.fingerprint, target.hidden_size) == (engine.weights_hash, engine.hidden_size)
    assert (target.layers, target.vocab_size) == (engine.layers, engine.vocab_size)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ids.json", "[7, 3, 21]"),
        ("ids.jsonl", "7\n3\n21\n"),
        ("ids.txt", "7 3\n21"),
    ],
)
def test_a_draft_vocabulary_restricts_the_head(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    target = borrowed(tmp_path, draft_vocab=tmp_path / name)
    assert target.head.ids_D.tolist() == [3, 7, 21]
    torch.testing.assert_close(target.head(HIDDEN), HIDDEN @ HEAD[[3, 7, 21]].T)
    assert len(target.embedding_VH) == ROWS


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (None, "neither a JSON list"),
        ("", "some ids"),
        ("[]", "some ids"),
        ("[1, 1]", "each once"),
        ("[40]", "40"),
        ("-1", "-1"),
        ("[1.0]", "1.0"),
        ("[true]", "True"),
        ("one\ntwo", "neither a JSON list"),
        ("[1, 2", "neither a JSON list"),
    ],
)
def test_a_draft_vocabulary_that_is_none_names_its_setting(tmp_path, text, word):
    path = tmp_path / "ids.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadConfig, match=r"drafter\.draft_vocab") as refusal:
        borrowed(tmp_path, draft_vocab=path)
    assert word in str(refusal.value)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BadCheckpoint, match="nowhere"):
        Borrowed.read(tmp_path / "nowhere", dtype=torch.float32, vocab_size=3)


@pytest.mark.parametrize("own", [False, True], ids=["borrowed head", "own head"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_oracle_drafts_come_from_the_matrix_that_is_meant(tmp_path, tied, own):
    """Target tied or not, drafter with a head of its own or not: four matrices, four different drafts."""
    from tests.drafter.test_dflash_formats_oracle import IDS, reduced

    oracle, taps_PKH = tiny.tiny(1), tiny.random_taps(9)
    folder = tiny.write_target(tmp_path / "target", oracle)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": tied}))
    if own:
        own_DH = reduced(oracle, IDS, tmp_path / "drafter")
    else:
        tiny.write_drafter(tmp_path / "drafter", oracle)
    drafter = tiny.DFlashDrafter.load("dflash", tmp_path / "drafter", tiny.borrow(folder), draws="argmax")
    context = tiny.opened(drafter)
    tiny.feed_in_pieces(drafter, context, taps_PKH, 17, [9])
    weight = own_DH if own else oracle.embedding_VH if tied else oracle.head.weight.detach()
    rows = (oracle.hidden(taps_PKH, 17)[1:] @ weight.T).argmax(1).tolist()
    assert list(tiny.ask(drafter, context)[0].ids) == [IDS[row] if own else row for row in rows]
