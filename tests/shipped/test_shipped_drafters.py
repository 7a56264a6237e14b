"""The drafters that ship are for the model that ships, and draft as well as when they were made."""

import logging
import re
from pathlib import Path

import pytest

from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import NgramTable
from services.shipped import flags
from services.shipped.flags import NGRAM, drafter_flags
from services.text.files import TokenizerFiles
from services.training.answer import read_answers
from services.training.evaluate import Sample, acceptance
from services.training.files import sha256

HELD_OUT = Path(__file__).parent / "data/held-out.jsonl"  # answers of the embedded model at temperature 0


@pytest.fixture(scope="module")
def table():
    return NgramTable.read(NGRAM)


def test_the_table_is_for_the_embedded_model(table, embedded_model):
    assert table.tokenizer_hash == TokenizerFiles.read(embedded_model).hash
    assert drafter_flags(embedded_model)["ngram_table"] == str(NGRAM)


def test_models_that_ship_are_loaded_with_the_target_they_were_made_for(embedded_model, tmp_path, monkeypatch):
    monkeypatch.setattr(flags, "ROOT", tmp_path)
    monkeypatch.setattr(flags, "DRAFT_VOCAB", tmp_path / "draft_vocab.json")
    assert drafter_flags(embedded_model) == {"ngram_table": str(NGRAM)}
    (tmp_path / "mtp").mkdir()
    (tmp_path / "draft_vocab.json").write_text("[1]")
    assert drafter_flags(embedded_model) == {
        "ngram_table": str(NGRAM),
        "mtp": str(tmp_path / "mtp"),
        "model": str(embedded_model),
        "draft_vocab": str(tmp_path / "draft_vocab.json"),
    }


def test_a_model_with_another_tokenizer_gets_no_table_and_the_log_says_so(embedded_model, tmp_path, caplog):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((embedded_model / name).read_bytes())
    with caplog.at_level(logging.WARNING):
        assert "ngram_table" not in drafter_flags(tmp_path)
    assert "another tokenizer" in caplog.text


def test_golden_acceptance_of_the_table_on_answers_it_was_not_made_from(table):
    answers = list(read_answers(HELD_OUT, vocab_size=table.vocab_size))
    assert all(answer.held_out for answer in answers)
    alone, backed = (
        acceptance(NgramDrafter(table=each), map(Sample, answers), count=7).tokens_per_round for each in (None, table)
    )
    assert (round(alone, 2), round(backed, 2)) == (1.47, 2.14)


def test_every_shipped_file_is_small_and_the_one_its_card_names():
    size = sum(path.stat().st_size for path in NGRAM.iterdir())
    assert size < 10 * 2**20
    (named,) = re.findall(r"sha256 `(\w+)`", (NGRAM / "README.md").read_text())
    assert sha256(NGRAM / "model.safetensors") == named
