"""Every measurement runs from its command to one JSON document. What it says is not looked at here."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.exactness.drafters import write_all

ROOT = Path(__file__).parents[2]
LESS = {"decode": ["--workloads=chat", "--batches=2"]}
"""Of what takes long, or needs what is not installed here."""


@pytest.mark.full
@pytest.mark.parametrize("name", ["single", "ngram", "concurrent", "prefill", "rounds", "drafter", "draws", "decode"])
def test_it_prints_one_document(embedded_model, name):
    document = printed(name, f"--model={embedded_model}", *LESS.get(name, []))
    assert document["environment"]["commit"]
    assert document["rows"]
    assert any("--quick" in warning for warning in document["warnings"])
    assert bool(document["ratios"]) == (name not in ("rounds", "drafter"))


@pytest.mark.full
def test_drafters_that_are_named_are_measured_and_written_about(embedded_model, tmp_path):
    """They are of nobody's training, and draft in every mode that is named."""
    folders = {name: folder for name, folder in write_all(tmp_path, embedded_model).items() if "MODEL" not in name}
    named = [f"--{name.removeprefix('TANDEM_DRAFTER_').lower()}={folder}" for name, folder in folders.items()]
    shown = tmp_path / "docs"
    document = printed(
        "decode", f"--model={embedded_model}", *named, *LESS["decode"], "--temperatures=0.7", f"--write={shown}"
    )
    modes = ["none", "ngram", "mtp", "dflash", "dflash2", "auto"]
    assert [row["mode"] for row in document["rows"]] == modes * (len(document["rows"]) // len(modes))
    for row in document["rows"]:
        assert row["drafts"] > 0 or row["mode"] in ("none", "ngram", "auto")
    text = (shown / "decode.md").read_text()
    assert "| none, tokens/s | ngram | mtp | dflash | dflash2 | auto | auto / best fixed |" in text
    for plot in ("decode-speed.svg", "decode-accepted.svg"):
        assert f"({plot})" in text
        assert ElementTree.parse(shown / plot).getroot().tag.endswith("svg")


@pytest.mark.full
def test_others_are_measured_beside_tandem_with_the_same_drafters(embedded_model, tmp_path):
    folders = write_all(tmp_path, embedded_model)
    named = [f"--{mode}={folders[f'TANDEM_DRAFTER_{mode.upper()}']}" for mode in ("dflash", "dflash2")]
    shown = tmp_path / "docs"
    flags = ("--peers", "--workloads=chat", "--modes=dflash,dflash2,auto", *named, f"--write={shown}")
    document = printed("decode", f"--model={embedded_model}", *flags)
    ours = [f"tandem, {mode}" for mode in ("none", "dflash", "dflash2", "auto")]
    others = ["transformers", "transformers, prompt lookup", "z-lab's dflash", "z-lab's dflash2"]
    assert [row["who"] for row in document["rows"]] == [*ours, *others]
    assert all(row["equal"] == row["answers"] for row in document["rows"] if row["who"] in ours)
    assert "chat: tandem, dflash2 / z-lab's dflash2" in document["ratios"]
    assert all(f"| {who} |" in (shown / "decode-peers.md").read_text() for who in others)


def printed(name: str, *flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"bench.{name}", "--quick", "--repeats=1", "--json", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["bench"] == name
    return document


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_a_count_that_is_none_is_refused(repeats):
    assert "--repeats" in refused("drafter", f"--repeats={repeats}")


@pytest.mark.parametrize(
    ("flag", "legal"),
    [
        ("--workloads=code,poems", "'poems' is none of code, arithmetic, extraction, chat, prose, repetition"),
        ("--modes=ngram,eagle", "'eagle' is none of auto, none, ngram, mtp, dflash, dflash2"),
        ("--temperatures=0,2.5", "2.5 is not from 0 to 2"),
        ("--batches=1,0", "0 is not at least 1"),
        ("--prompts=165", "165 is not from 1 to 164"),
        ("--gguf=some.gguf", "--gguf is for llama.cpp, which is measured with --peers"),
        ("--peers --batches=1", "--peers is greedy and one stream: it takes no --temperatures and no --batches"),
    ],
)
def test_what_the_table_of_drafters_cannot_do_is_refused_with_what_it_can(flag, legal):
    said = refused("decode", flag)
    assert legal in said
    assert re.match("--[a-z]+", flag)[0] in said


def refused(name: str, flags: str) -> str:
    command = [sys.executable, "-m", f"bench.{name}", *flags.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    return done.stderr
