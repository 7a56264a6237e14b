"""The three command lines of `tandem serve`, and what it prints when they can answer."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from services.config import ServeSettings, load
from services.config.sources import ROLES
from services.supervisor.serve import greeting, programs


def started(addresses, *, target_flags=None, drafter_flags=None, config=None, **settings):
    """role -> its settings, as the program itself would read them from the command line it is given."""
    found = {}
    flags_of = {"target_flags": target_flags or {}, "drafter_flags": drafter_flags or {}}
    for program in programs(ServeSettings(**settings), **flags_of, config=config):
        python, _, module, role, *flags = program.command(addresses)
        assert (python, module, role) == (sys.executable, "services.cli", program.role)
        given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
        assert given.pop("config", None) == (str(config) if config else None)
        found[role] = load(ROLES[role], flags={name.replace("-", "_"): value for name, value in given.items()})
    return found


FIRST = {"drafter": "127.0.0.1:11", "target": "127.0.0.1:12"}


def test_each_is_told_where_the_one_before_listens():
    found = started(FIRST)
    assert found["target"].drafter == FIRST["drafter"]
    assert found["gateway"].target == FIRST["target"]


@pytest.mark.parametrize(
    ("settings", "http", "grpc"),
    [
        ({}, 8000, 8001),
        ({"port": 9000}, 9000, 9001),
        ({"port": 0}, 0, 0),
        ({"port": 9000, "grpc_port": 7}, 9000, 7),
    ],
)
def test_the_gateway_takes_the_port_asked_for_and_grpc_the_next(settings, http, grpc):
    gateway = started(FIRST, **settings)["gateway"]
    assert (gateway.listen, gateway.grpc_listen) == (f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


def test_one_that_comes_back_listens_where_it_did():
    known = {"drafter": "127.0.0.1:1", "target": "127.0.0.1:2", "gateway": "127.0.0.1:3", "grpc": "127.0.0.1:4"}
    found = started(known, port=0)
    assert found["drafter"].listen == known["drafter"]
    assert (found["gateway"].listen, found["gateway"].grpc_listen) == (known["gateway"], known["grpc"])


def test_settings_of_the_model_and_the_file_are_passed_on(tmp_path):
    found = started(FIRST, target_flags={"dtype": "fp32", "cache_rows": "512"}, config=tmp_path / "tandem.toml")
    assert (found["target"].dtype, found["target"].cache_rows) == ("fp32", 512)


def test_what_ships_for_the_drafter_is_passed_on(tmp_path):
    found = started(FIRST, drafter_flags={"ngram_table": str(tmp_path)})
    assert found["drafter"].ngram_table == tmp_path


def test_the_printed_curl_line_is_one_line_that_streams_greedily():
    line = next(line for line in greeting("http://127.0.0.1:8000", None, "Bob's model").splitlines() if "curl" in line)
    words = shlex.split(line)
    body = json.loads(words[words.index("-d") + 1])
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8000/v1/chat/completions"]
    assert (body["model"], body["temperature"], body["stream"]) == ("Bob's model", 0, True)


def test_a_process_that_starts_others_never_holds_a_channel():
    found = subprocess.run(
        [sys.executable, "-c", "import services.supervisor.serve, sys; sys.exit('grpc' in sys.modules)"],
        cwd=Path(__file__).parents[2],
    )
    assert found.returncode == 0
