"""Every measurement runs from its command to one JSON document. What it says is not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.parametrize("name", ["single", "ngram", "concurrent", "prefill", "rounds", "drafter", "draws"])
def test_it_prints_one_document(embedded_model, name):
    command = [sys.executable, "-m", f"bench.{name}", "--quick", "--repeats=1", "--json", f"--model={embedded_model}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["bench"] == name
    assert document["environment"]["commit"]
    assert document["rows"]
    assert any("--quick" in warning for warning in document["warnings"])
    assert bool(document["ratios"]) == (name not in ("rounds", "drafter"))


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_a_count_that_is_none_is_refused(repeats):
    command = [sys.executable, "-m", "bench.drafter", f"--repeats={repeats}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--repeats" in done.stderr
