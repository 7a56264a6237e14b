"""Training goes on where it was killed, and drafters come out that serve."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from services.errors import BadConfig
from services.training import optimise as module
from services.training import plots, train_model
from services.training.data import DataOptions, Target, prepare
from services.training.evaluate import Acceptance
from services.training.lanes import Captured
from services.training.optimise import STATE, History, Run, Schedule
from services.training.train_model import FILE, ModelOptions
from services.training.train_model import train_model as train

SCHEDULE = Schedule(steps=12, minutes=None, rate=2e-3, warmup=3, bf16=False, save_every_s=0)
KINDS = ("mtp", "dflash", "dflash2")


@pytest.fixture(scope="module")
def data(talker, tmp_path_factory):
    """Answers of a few fixed patterns, so that there is something to learn, and one prompt in four held out."""
    folder = tmp_path_factory.mktemp("answers")
    with (folder / "answers.jsonl").open("w") as file:
        for n in range(48):
            prompt = [n, (3 * n) % 256, 7]
            ids = [(5 * (n % 4) + i % 6) for i in range(18)]
            file.write(json.dumps({"prompt_ids": prompt, "ids": ids, "temperature": 0.7 * (n % 3 == 2)}) + "\n")
    options = DataOptions(
        folder=folder / "data",
        answers=folder / "answers.jsonl",
        most_prompt=30,
        most_answer=30,
        dtype=torch.float32,
        threads=1,
    )
    prepare(Target(talker), options, Captured((1, 4), True))
    return options


@pytest.fixture(autouse=True)
def one_in_four(monkeypatch):
    monkeypatch.setattr("services.training.answer.HELD_OUT", 4)


def options(kind, **other):
    small = {"sequences": 4, "distil": 0.0, "head_ids": 0, "blocks": 4, "block_size": 4, "taps": (1, 4), "rank": 6}
    return ModelOptions(kind=kind, evaluations=2, samples=4, plots=False, **small | other)


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_and_resumed_run_ends_with_the_same_weights(talker, data, tmp_path, kind, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(talker, whole, data, options(kind), SCHEDULE, command="x")
    step = Run._one

    def dies(run):
        if run.step == 7:
            raise Killed
        return step(run)

    monkeypatch.setattr(Run, "_one", dies)
    with pytest.raises(Killed):
        train(talker, broken, data, options(kind), SCHEDULE, command="x")
    assert not (broken / FILE).exists()
    monkeypatch.setattr(Run, "_one", step)
    train(talker, broken, data, options(kind), SCHEDULE, command="x")
    states = [load_file(folder / STATE) for folder in (whole, broken)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert (whole / FILE).read_bytes() == (broken / FILE).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_learns_what_its_target_repeats(talker, data, tmp_path, kind):
    longer = replace(SCHEDULE, steps=120, rate=4e-3, save_every_s=1e9)
    found = train(talker, tmp_path, data, options(kind), longer, command="tandem train")
    losses = json.loads(run_state(tmp_path)["state"])["history"]["losses"]
    assert losses[-1][1] < 0.6 * losses[0][1]
    assert max(each.tokens_per_round for each in found.values()) > 1.4
    card = (tmp_path / "README.md").read_text()
    assert "`tandem train`" in card
    assert "temperature 0" in card


def run_state(folder):
    return safe_open(folder / STATE, framework="pt").metadata()


def test_losses_over_some_ids_leave_their_list_beside_the_drafter(talker, data, tmp_path):
    train(talker, tmp_path, data, options("mtp", head_ids=5), replace(SCHEDULE, steps=2), command="x")
    ids = json.loads((tmp_path / "draft_vocab.json").read_text())
    assert len(ids) == 5
    assert ids == sorted(ids)


def test_a_drafter_may_begin_with_one_that_was_trained_before(talker, data, tmp_path):
    still = replace(SCHEDULE, steps=1, rate=0.0)
    train(talker, tmp_path / "first", data, options("dflash"), replace(SCHEDULE, steps=4), command="x")
    for kind in ("dflash", "dflash2"):
        given = options(kind, begin_with=tmp_path / "first")
        train(talker, tmp_path / kind, data, given, still, command="x")
        first, second = (load_file(tmp_path / name / FILE) for name in ("first", kind))
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert "weights of sha256" in (tmp_path / kind / "README.md").read_text()
    assert len(second) > len(first), "convolutions and selector are there, and begin as nothing"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"taps": (1, 3)}, r"begin-with: .*first has target_layer_ids \[1, 4\], and it has to be \[1, 3\]"),
        ({"layers": 1}, "has num_hidden_layers 2, and it has to be 1"),
    ],
)
def test_a_drafter_that_another_cannot_begin_with_is_refused_by_key(talker, data, tmp_path, other, message):
    train(talker, tmp_path / "first", data, options("dflash"), replace(SCHEDULE, steps=1), command="x")
    again = replace(data, folder=tmp_path / "data")
    with pytest.raises(BadConfig, match=message):
        train(
            talker,
            tmp_path / "b",
            again,
            options("dflash", begin_with=tmp_path / "first", **other),
            SCHEDULE,
            command="x",
        )


def test_bf16_arithmetic_keeps_fp32_weights(talker, data, tmp_path):
    train(talker, tmp_path, data, options("dflash"), replace(SCHEDULE, steps=2, bf16=True), command="x")
    assert {tensor.dtype for tensor in load_file(tmp_path / STATE).values()} == {torch.float32}
    assert {tensor.dtype for tensor in load_file(tmp_path / FILE).values()} == {torch.bfloat16}


def test_a_folder_of_a_run_with_other_options_is_refused(talker, data, tmp_path):
    train(talker, tmp_path, data, options("mtp"), replace(SCHEDULE, steps=1), command="x")
    with pytest.raises(BadConfig, match="is of a run with other options"):
        train(talker, tmp_path, data, options("mtp", passes=2), replace(SCHEDULE, steps=1), command="x")


def test_a_damaged_state_is_refused_by_name(talker, data, tmp_path):
    train(talker, tmp_path, data, options("mtp"), replace(SCHEDULE, steps=1), command="x")
    (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:-5])
    with pytest.raises(BadConfig, match=r"run\.safetensors is damaged"):
        train(talker, tmp_path, data, options("mtp"), replace(SCHEDULE, steps=1), command="x")


def test_minutes_become_steps_once_it_is_known_how_long_one_takes(talker, data, tmp_path, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    train(talker, tmp_path, data, options("mtp"), replace(SCHEDULE, steps=None, minutes=0.5), command="x")
    assert json.loads(run_state(tmp_path)["state"])["total"] == 30  # a second each, by this clock


def test_the_rate_climbs_then_falls_to_a_twentieth():
    schedule = Schedule(steps=100, minutes=None, rate=1.0, warmup=10)
    rates = [schedule.rate_at(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert all(a >= b for a, b in pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0.05, abs=1e-3)
    assert math.isclose(rates[55], 0.05 + 0.95 / 2)


def test_a_token_to_mask_with_is_one_that_no_chat_has(talker, tmp_path):
    target = Target(talker)
    assert target.tokenizer.token(train_model._mask_id(target, None)) == "<spare>"
    with pytest.raises(BadConfig, match="mask-id is 9999; legal are 0 to"):
        train_model._mask_id(target, 9999)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(BadConfig, match=r"tandem-serve\[train\]"):
        plots.check()


def test_plots_are_pngs(tmp_path):
    pytest.importorskip("matplotlib")
    found = Acceptance()
    found.add(3, 2, 3)
    history = History(losses=[(1, 3.0), (10, 2.0)], tokens_per_round=[(10, 1.5)])
    names = plots.plot(tmp_path, history, {"temperature 0": found})
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
