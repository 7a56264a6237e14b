"""The drafters that ship are for the model that ships, and draft as well as when they were made."""

import logging
import re
from pathlib import Path

import pytest

from services.cli import _with_target
from services.config.settings import DrafterSettings
from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import NgramTable
from services.shipped.companions import MODELS, NGRAM, ROOT, companions
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
    assert companions(embedded_model)["ngram_table"] == NGRAM


def test_all_kinds_of_drafters_ship_and_are_loaded_where_settings_name_none(embedded_model):
    settings = _with_target(DrafterSettings(model="embedded"))
    assert settings.model == embedded_model
    assert settings.ngram_table == NGRAM
    assert {mode: getattr(settings, mode) for mode in MODELS} == {mode: ROOT / mode for mode in MODELS}
    assert settings.loaded == ("ngram", *MODELS)


def test_what_settings_name_goes_before_what_ships(embedded_model, tmp_path):
    settings = _with_target(DrafterSettings(model="embedded", mtp=tmp_path, modes="mtp,dflash"))
    assert (settings.mtp, settings.dflash) == (tmp_path, ROOT / "dflash")
    assert settings.loaded == ("mtp", "dflash")


def test_a_model_with_another_tokenizer_gets_no_table_and_the_log_says_so(embedded_model, tmp_path, caplog):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((embedded_model / name).read_bytes())
    with caplog.at_level(logging.WARNING):
        assert "ngram_table" not in companions(tmp_path)
    assert "another tokenizer" in caplog.text


def test_golden_acceptance_of_the_table_on_answers_it_was_not_made_from(table):
    answers = list(read_answers(HELD_OUT, vocab_size=table.vocab_size))
    assert all(answer.held_out for answer in answers)
    alone, backed = (
        acceptance(NgramDrafter(table=each), map(Sample, answers), count=7).tokens_per_round for each in (None, table)
    )
    assert (round(alone, 2), round(backed, 2)) == (1.47, 2.14)


@pytest.mark.parametrize(("name", "most"), [("ngram", 10), ("mtp", 10), ("dflash", 20), ("dflash2", 40)])
def test_every_shipped_drafter_is_small_and_the_one_its_card_names(name, most):
    folder = ROOT / name
    assert sum(path.stat().st_size for path in folder.iterdir()) < most * 2**20
    (named,) = re.findall(r"`model.safetensors` .*sha256 `(\w+)`", (folder / "README.md").read_text())
    assert sha256(folder / "model.safetensors") == named
