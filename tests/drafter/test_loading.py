"""From settings to drafters: which folders are read, and what a wrong one says before a port opens."""

import asyncio
import socket

import pytest
import torch
from tokenizers import Tokenizer as Made
from tokenizers import models

from services.config import DrafterSettings
from services.drafter import process
from services.drafter.process import load
from services.errors import BadCheckpoint, BadConfig
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import VOCAB, ask, feed_in_pieces, opened, random_taps


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target with its tokenizer, and drafters of both versions for it."""
    root = tmp_path_factory.mktemp("models")
    first = tiny.tiny(1)
    second = tiny.tiny(2)
    tiny.write_target(root / "target", first)
    Made(models.WordLevel({f"w{id}": id for id in range(VOCAB)}, unk_token="w0")).save(
        str(root / "target/tokenizer.json")
    )
    tiny.write_drafter(root / "first", first)
    tiny.write_drafter(root / "second", second)
    return root


def settings(folders, **given):
    named = {
        name: folders / value if name in ("model", "dflash", "dflash2") else value for name, value in given.items()
    }
    return DrafterSettings(dtype="fp32", **named)


def test_without_folders_there_is_the_n_gram_drafter_alone():
    assert [drafter.description.mode for drafter in load(DrafterSettings())] == ["ngram"]


def test_drafters_that_have_folders_are_loaded_and_share_what_they_borrow(folders):
    drafters = load(settings(folders, model="target", dflash="first", dflash2="second", threads=2))
    assert [drafter.description.mode for drafter in drafters] == ["ngram", "dflash", "dflash2"]
    assert [drafter.description.name for drafter in drafters] == ["ngram", "first", "second"]
    assert drafters[1]._embedding_VH is drafters[2]._embedding_VH
    assert drafters[1].description.target_vocab_size == VOCAB
    assert torch.get_num_threads() == 2


def test_draws_and_the_draft_vocabulary_reach_the_drafter(folders, tmp_path):
    path = tmp_path / "ids"
    path.write_text("3\n4\n5")
    given = {"model": "target", "dflash": "first", "modes": ["dflash"], "draft_vocab": path}
    drafts = []
    for draws in ("argmax", "coupled"):
        (drafter,) = load(settings(folders, dflash_draws=draws, **given))
        context = opened(drafter, temperature=2.0, seed=1)
        feed_in_pieces(drafter, context, random_taps(5), 4, [5])
        drafts.append(ask(drafter, context)[0].ids)
    assert drafts[0] != drafts[1]
    assert {id for ids in drafts for id in ids} <= {3, 4, 5}


def test_a_drafter_with_a_vocabulary_of_its_own_is_restricted_to_it_unless_another_is_given(folders, tmp_path):
    named = {"model": folders / "target", "dflash2": folders / "second"}
    (tmp_path / "own").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "own" / name).write_bytes((folders / "first" / name).read_bytes())
    (tmp_path / "own/draft_vocab.json").write_text("[3, 4, 5]")
    (tmp_path / "given").write_text("[1, 2]")

    def ids(**given):
        loaded = load(DrafterSettings(dtype="fp32", dflash=tmp_path / "own", **named, **given))[1:]
        return [None if each._head.ids_D is None else each._head.ids_D.tolist() for each in loaded]

    assert ids() == [[3, 4, 5], None]
    assert ids(draft_vocab=tmp_path / "given") == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"model": "target", "dflash": "nowhere"}, BadCheckpoint, ("drafter.dflash", "nowhere", "config.json")),
        ({"model": "nowhere", "dflash": "first"}, BadCheckpoint, ("nowhere", "tokenizer.json")),
        ({"model": "target", "dflash": "second"}, BadConfig, ("drafter.dflash", "second", "drafter.dflash2")),
        ({"model": "target", "dflash2": "first"}, BadConfig, ("drafter.dflash2", "first", "drafter.dflash")),
        ({"model": "first", "dflash": "first"}, BadCheckpoint, ("tokenizer.json",)),
    ],
    ids=str,
)
def test_a_wrong_folder_is_said_before_the_port_opens(folders, given, kind, words):
    """The port is free afterwards: nobody listened there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(kind) as refusal:
            asyncio.run(process.run(settings(folders, listen=address, **given)))
    for word in words:
        assert word in str(refusal.value)
