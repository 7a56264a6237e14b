"""What the target writes for training is what it would say alone, and a killed run goes on as if it had not been."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from services.engine.engine import Engine
from services.engine.sampling import Ask, Rules, SamplingParams, sample_and_match
from services.errors import BadConfig
from services.training import data as module
from services.training import questions
from services.training.data import DataOptions, Target, prepare
from services.training.lanes import Captured, Task, Written, write
from services.training.make_data import answers_per_shard
from services.training.shards import INDEX, Shards
from tests.engine.tiny import feed

CAPTURED = Captured((1, 4), True)


@pytest.fixture(scope="module")
def engine(talker):
    return Engine.load(talker, dtype=torch.float32, threads=1, cache_rows=4000, max_sequences=8, context=400)


@pytest.fixture(scope="module", autouse=True)
def short_turns():
    """A random target hardly ever ends a user turn; let it try for less long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "TURN_IDS", 10)
        yield


@pytest.fixture(scope="module")
def written(talker, tmp_path_factory):
    """Options for a few answers of the talker, which are there already."""
    options = DataOptions(
        folder=tmp_path_factory.mktemp("written"),
        size=14,
        most_prompt=300,
        most_answer=20,
        lanes=5,
        shard_bytes=2**19,
        dtype=torch.float32,
        threads=1,
    )
    prepare(Target(talker), options, CAPTURED)
    return options


@pytest.fixture
def made(talker, written, tmp_path):
    """The same in a folder of a test's own."""
    shutil.copytree(written.folder, tmp_path / "data")
    return Target(talker), replace(written, folder=tmp_path / "data")


def alone(engine, task):
    """One token at a time, nothing beside it; and the states of every id but the last."""
    slot = engine.open(task.rows)
    rules, ids, rows, states = Rules(task.params, task.prompt_ids, frozenset()), [], list(task.prompt_ids), []
    while len(ids) < task.most and not (ids and ids[-1] in task.stop_ids):
        forward = feed(engine, slot, rows, taps=CAPTURED.layers, hidden=True)
        states.append(torch.stack([*(forward.taps[layer] for layer in CAPTURED.layers), forward.hidden_TH], 1))
        [verdict] = sample_and_match(forward.logits_RV[-1:], [Ask(rules, slot.length, ())])
        ids += verdict.tokens
        rows = ids[-1:]
    engine.close(slot)
    return ids, torch.cat(states)


def test_oracle_texts_written_side_by_side_are_what_each_would_be_alone(engine):
    def task(number):
        params = SamplingParams(temperature=(0.0, 0.8)[number % 2], seed=number, choice=number % 3)
        prompt = [(7 * number + i) % 256 for i in range(3 + 20 * (number % 4))]
        return Task(number=number, prompt_ids=prompt, params=params, most=1 + number % 17, stop_ids=frozenset(range(9)))

    tasks = [task(number) for number in range(20)]
    waiting = iter(tasks)
    written = {each.task.number: each for each in write(engine, CAPTURED, lambda: next(waiting, None), lanes=6)}
    assert sorted(written) == list(range(20))
    for each in tasks:
        ids, states = alone(engine, each)
        assert written[each.number].ids == ids
        torch.testing.assert_close(written[each.number].taps_PKH, states)
    assert engine.free_rows == 4000


def only(engine, task):
    waiting = iter([task])
    [written] = write(engine, CAPTURED, lambda: next(waiting, None), lanes=2)
    return written


def test_states_of_a_known_answer_are_those_it_was_written_with(engine):
    params = SamplingParams(temperature=1.0, seed=3)
    task = Task(number=0, prompt_ids=[1, 2, 3], params=params, most=12)
    first = only(engine, task)
    again = Task(number=0, prompt_ids=[1, 2, 3], params=params, given=first.ids)
    second = only(engine, again)
    assert second.ids == first.ids
    torch.testing.assert_close(second.taps_PKH, first.taps_PKH)


def test_a_user_turn_that_is_of_use_is_answered_and_another_is_tried_again(talker):
    target = Target(talker)
    source = questions.Questions(chats=target.chats, own=None, size=99, seed=0, most_prompt=400, most_answer=9)
    turns = [task for task in map(source.first, range(40)) if not task.capture]
    assert 20 < len(turns) < 40
    useful = [*target.tokenizer.encode("How do magnets work?"), target.tokenizer.eos_id]
    answer = source.then(Written(turns[0], useful, None))
    assert answer.prompt_ids == target.chats.prompt_ids([{"role": "user", "content": "How do magnets work?"}])
    assert source.then(Written(answer, [1, 2], None)) is None
    task, attempts = turns[0], 1
    while not (task := source.then(Written(task, [1], None))).capture:
        attempts += 1
    assert attempts == questions.ATTEMPTS


class Killed(Exception):
    pass


@pytest.fixture
def killed(monkeypatch):
    """The next run ends abruptly after so many texts."""

    class Bar(module.Bar):
        left = None

        def __call__(self, steps, note=""):
            if Bar.left is not None:
                Bar.left -= steps
                if Bar.left < 0:
                    Bar.left = None
                    raise Killed
            super().__call__(steps, note)

    monkeypatch.setattr(module, "Bar", Bar)
    return lambda texts: setattr(Bar, "left", texts)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".safetensors"}


def test_a_killed_run_goes_on_with_the_next_shard_and_ends_with_the_same_files(made, tmp_path, killed):
    target, options = made
    whole = contents(options.folder)
    assert len(whole) >= 3
    other = replace(options, folder=tmp_path / "other")
    killed(9)
    with pytest.raises(Killed):
        prepare(target, other, CAPTURED)
    before = contents(other.folder)
    assert 0 < len(before) < len(whole)
    times = {path.name: path.stat().st_mtime_ns for path in other.folder.glob("*.safetensors")}
    prepare(target, other, CAPTURED)
    assert contents(other.folder) == whole
    assert all((other.folder / name).stat().st_mtime_ns == time for name, time in times.items())


def test_what_is_complete_needs_no_engine(made, monkeypatch):
    target, options = made
    first = prepare(target, options, CAPTURED)
    monkeypatch.setattr(module.Engine, "load", None)
    assert [sample.answer for sample in prepare(target, options, CAPTURED)] == [sample.answer for sample in first]


def test_a_drafter_that_needs_less_finds_its_own_columns(made):
    target, options = made
    everything = prepare(target, options, CAPTURED)
    hidden = prepare(target, options, Captured((), True))
    layer = prepare(target, options, Captured((4,), False))
    for index in range(len(everything)):
        assert torch.equal(hidden[index].taps_PKH, everything[index].taps_PKH[:, 2:])
        assert torch.equal(layer[index].taps_PKH, everything[index].taps_PKH[:, 1:2])


def test_shards_hold_every_answer_with_states_of_all_ids_but_the_last(made):
    target, options = made
    shards = prepare(target, options, CAPTURED)
    assert len(shards) == 14
    for sample in shards:
        ids = [*sample.answer.prompt_ids, *sample.answer.ids]
        assert sample.taps_PKH.shape == (len(ids) - 1, 3, target.keys.integer("hidden_size"))
        assert 0 < len(sample.answer.ids) <= 20
    temperatures = sorted(sample.answer.temperature for sample in shards)
    assert temperatures[:7] == [0.0] * 7
    assert len(shards.part(held_out=True)) + len(shards.part(held_out=False)) == 14


def test_no_shard_is_larger_than_it_may_be(made):
    _, options = made
    assert max(path.stat().st_size for path in options.folder.glob("*.safetensors")) <= options.shard_bytes + 4096
    assert answers_per_shard(100, 10**9, 1) == 1


@pytest.mark.parametrize(
    ("change", "captured", "message"),
    [
        ({}, Captured((1, 3), True), r"has the taps of layers \[1, 4\], and not of \[3\]"),
        ({"seed": 5}, CAPTURED, "was made for built-in prompts, seed 0"),
        ({"most_answer": 30}, CAPTURED, r"at most 300 \+ 20 ids, not .*300 \+ 30"),
    ],
)
def test_a_folder_made_for_something_else_is_refused_by_name(made, change, captured, message):
    target, options = made
    with pytest.raises(BadConfig, match=message):
        prepare(target, replace(options, **change), captured)


def test_shards_of_other_weights_are_refused(made):
    target, options = made
    target.weights_hash = "w"
    with pytest.raises(BadConfig, match="made with another target: its weights_hash is"):
        prepare(target, options, CAPTURED)


def test_a_shard_of_another_origin_in_the_folder_is_refused(made):
    _, options = made
    index = json.loads((options.folder / INDEX).read_text())
    index["origin"]["asked"] = "something else"
    (options.folder / INDEX).write_text(json.dumps(index))
    origin = index["origin"]
    with pytest.raises(BadConfig, match="is of another origin"):
        Shards.open(options.folder, module.Origin(**origin | {"captured": CAPTURED}))


def test_no_more_is_written_once_the_folder_is_full(made, capsys):
    target, options = made
    shards = prepare(target, replace(options, folder=options.folder / "new", most_bytes=1), CAPTURED)
    assert len(shards) < 14
    assert "no more are written" in capsys.readouterr().err


def test_prompts_that_are_too_long_are_left_out_and_counted(made, tmp_path, capsys):
    target, options = made
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({"prompt": "x" * n}) + "\n" for n in (5, 400, 9)))
    shards = prepare(target, replace(options, folder=tmp_path / "new", prompts=tmp_path / "mine.jsonl"), CAPTURED)
    assert [sample.answer.prompt_ids for sample in shards] == [
        target.chats.prompt_ids([{"role": "user", "content": "x" * n}]) for n in (5, 9)
    ]
    assert "data: 1 prompts are empty or longer" in capsys.readouterr().err


def test_answers_from_a_file_are_read_again_for_their_states(made, tmp_path):
    target, options = made
    rows = [{"prompt_ids": [1, 2, 3], "ids": [4, 5, 6 + n], "temperature": 0.7} for n in range(4)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shards = prepare(target, replace(options, folder=tmp_path / "new", answers=tmp_path / "answers.jsonl"), CAPTURED)
    assert [list(sample.answer.ids) for sample in shards] == [row["ids"] for row in rows]
    assert all(sample.taps_PKH.shape[0] == 5 for sample in shards)
