"""The `tandem` command: light to start, one line when it refuses, nothing declared twice."""

import os
import subprocess
import sys

import pytest

from services.config import ServeSettings
from services.config.sources import ROLES

# Importing torch raises in this process, and so does grpc where it should not be needed.
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(name + " must not be imported")
sys.meta_path.insert(0, Absent())
from services.cli import main
main()
"""


def tandem(*arguments, without=(), **environment):
    program = ["-c", WITHOUT.format(names=set(without))] if without else ["-m", "services.cli"]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"} | environment,
    )


@pytest.mark.parametrize("role", ROLES)
def test_help_needs_neither_torch_nor_grpc_and_shows_every_setting(role):
    done = tandem(role, "--help", without=("torch", "grpc"))
    assert done.returncode == 0, done.stderr
    for name in ROLES[role].model_fields:
        assert f"--{name.replace('_', '-')} " in done.stdout
        assert f"TANDEM_{role}_{name}".upper() in done.stdout


@pytest.mark.parametrize("command", ["generate", "verify", "top"])
def test_commands_for_people_need_no_torch_and_their_help_not_even_grpc(command):
    assert tandem(command, "--help", without=("torch", "grpc")).returncode == 0
    argument = {"generate": ["hello"], "verify": ["absent.json"], "top": ["--once"]}[command]
    done = tandem(command, *argument, "--address", "127.0.0.1:1", without=("torch",))
    assert (done.returncode, done.stderr.count("\n"), done.stderr[:8]) == (2, 1, "tandem: ")


@pytest.mark.parametrize("kind", ["ngram", "mtp", "dflash", "dflash2"])
def test_help_on_training_needs_no_torch(kind):
    done = tandem("train", kind, "--help", without=("torch", "grpc", "numpy"))
    assert done.returncode == 0, done.stderr
    assert "--target" in done.stdout


def test_serve_takes_the_settings_of_the_model_too():
    shown = tandem("serve", "--help").stdout
    assert "--dtype" in shown
    assert "--cache-rows" in shown
    assert "--listen" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("target", "--dtype", "fp16"), "target.dtype must be bf16 or fp32, not 'fp16'"),
        (("gateway",), "gateway.target is required: HOST:PORT"),
        (("serve", "--port", "70000"), "serve.port must be an integer from 0 to 65535, not '70000'"),
        (("serve", "--queue", "nan"), "target.queue must be an integer from 0 to 65536, not 'nan'"),
    ],
)
def test_a_refusal_is_one_line_on_stderr_and_status_2(arguments, message):
    done = tandem(*arguments, without=("torch",))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"tandem: {message}\n")


def test_serve_checks_the_settings_of_all_three_before_it_starts_any():
    done = tandem("serve", "--port", "0", TANDEM_DRAFTER_MODES="eagle")
    assert done.returncode == 2
    assert done.stderr.startswith("tandem: drafter.modes must be one or more of ngram")


def test_an_unknown_option_names_the_nearest():
    done = tandem("target", "--cache-row", "1")
    assert done.returncode == 2
    assert "--cache-rows" in done.stderr


def test_a_model_folder_that_is_absent_is_one_line(tmp_path):
    done = tandem("target", "--model", str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tandem: ")
    assert done.stderr.count("\n") == 1


def test_no_option_of_the_supervisor_hides_one_of_the_target():
    shared = ServeSettings.model_fields.keys() & ROLES["target"].model_fields.keys()
    assert shared == {"grace_s"}
