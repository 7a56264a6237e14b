"""`tandem train` from the command line."""

import json

import pytest
from typer.testing import CliRunner

from services.drafter.ngram_table import NgramTable
from services.errors import BadConfig
from services.training.command import train_app


def tandem(*arguments):
    result = CliRunner().invoke(train_app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def answers(tmp_path):
    rows = [{"prompt_ids": [n], "ids": [5, 6, 7, 8 + n % 2] * 3, "temperature": 0.0} for n in range(60)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "answers.jsonl"


def test_a_table_is_made_and_measured_from_a_file_of_answers(talker, answers, tmp_path):
    shown = tandem("ngram", "--target", talker, "--out", tmp_path / "out", "--answers", answers)
    assert "temperature 0, lookup, then table:" in shown.stdout
    table = NgramTable.read(tmp_path / "out")
    assert len(table.lengths) == 4
    assert table.following([5], 2)[0] == (6, 7)
    assert "58 answers that the target wrote" in (tmp_path / "out/README.md").read_text()  # of 60; two are held out


def test_a_drafter_is_made_from_a_file_of_answers(talker, answers, tmp_path):
    out = tmp_path / "out"
    common = ["--target", talker, "--out", out, "--answers", answers, "--threads", 1, "--no-plots"]
    small = ["--steps", 2, "--fp32", "--taps", "1,4", "--block-size", 3, "--evaluations", 0, "--rank", 4]
    shown = tandem("dflash2", *common, *small, "--most-prompt", 9, "--most-answer", 20)
    assert "temperature 0, drafts of 2:" in shown.stdout
    assert json.loads((out / "config.json").read_text())["dflash_config"]["target_layer_ids"] == [1, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mtp",), "either steps or minutes"),
        (("mtp", "--steps", 1, "--minutes", 1), "either steps or minutes"),
        (("dflash", "--steps", 1, "--taps", "a"), "taps has to be layers such as 1,8,15, not 'a'"),
        (("dflash", "--steps", 1, "--taps", "5,2"), "taps has to be ascending"),
        (("mtp", "--steps", 1, "--device", "tpu"), "device has to be cpu or cuda"),
        (("ngram", "--prompts", "a", "--answers", "b"), "exclude each other"),
        (("ngram", "--order", 99), "order is 99; legal are 2 to"),
        (("dflash", "--steps", 1, "--no-plots", "--taps", "1,6"), "the target's layers are 0 to 5"),
        (("mtp", "--steps", 1, "--no-plots"), "together; the target's context is 700"),
    ],
)
def test_what_cannot_be_is_refused_by_name(talker, tmp_path, arguments, message):
    kind, *others = arguments
    with pytest.raises(BadConfig, match=message):
        tandem(kind, "--target", talker, "--out", tmp_path, *others)
