"""Where settings come from, which source wins, and what a refusal says."""

import pytest
from pydantic import ValidationError

from services.config import DrafterSettings, GatewaySettings, TargetSettings, load
from services.config.sources import ROLES
from services.errors import BadConfig


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "tandem.toml"
        path.write_text(text)
        return path

    return write


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(monkeypatch, file):
    path = file("[target]\nqueue = 1\nmax_sequences = 1\ncache_rows = 1024\n")
    monkeypatch.setenv("TANDEM_TARGET_QUEUE", "2")
    monkeypatch.setenv("TANDEM_TARGET_MAX_SEQUENCES", "2")
    settings = load(TargetSettings, flags={"queue": "3"}, file=path)
    assert (settings.queue, settings.max_sequences, settings.cache_rows, settings.dtype) == (3, 2, 1024, "bf16")


def test_the_environment_can_name_the_file(monkeypatch, file):
    monkeypatch.setenv("TANDEM_CONFIG", str(file("[drafter]\nmax_contexts = 7\n")))
    assert load(DrafterSettings, flags={}).max_contexts == 7


def test_an_empty_variable_counts_as_absent(monkeypatch):
    monkeypatch.setenv("TANDEM_TARGET_THREADS", "")
    assert load(TargetSettings, flags={}).threads is None


def test_a_list_is_written_with_commas(monkeypatch):
    folders = {"model": "target", "dflash": "drafter", "mtp": "target"}
    monkeypatch.setenv("TANDEM_DRAFTER_MODES", "ngram, dflash")
    assert load(DrafterSettings, flags=folders).loaded == ("ngram", "dflash")
    assert load(DrafterSettings, flags={"modes": "mtp", **folders}).loaded == ("mtp",)


def test_the_n_gram_drafter_and_those_that_have_a_folder_are_loaded():
    assert load(DrafterSettings, flags={}).loaded == ("ngram",)
    folders = {"model": "target", "dflash2": "drafter", "mtp": "target"}
    assert load(DrafterSettings, flags=folders).loaded == ("ngram", "mtp", "dflash2")


@pytest.mark.parametrize("mode", ["mtp", "dflash", "dflash2"])
def test_a_drafter_without_its_folder_or_its_targets_is_refused(mode):
    with pytest.raises(BadConfig, match=rf"drafter: {mode} must be a folder where {mode} is loaded"):
        load(DrafterSettings, flags={"modes": mode, "model": "target"})
    with pytest.raises(BadConfig, match=rf"drafter: model must be a folder where {mode} is loaded"):
        load(DrafterSettings, flags={mode: "drafter"})


def test_a_settings_object_reads_no_environment(monkeypatch):
    monkeypatch.setenv("TANDEM_DRAFTER_MAX_CONTEXTS", "7")
    assert DrafterSettings().max_contexts == 256


def test_settings_never_change():
    with pytest.raises(ValidationError):
        DrafterSettings().max_contexts = 1


def test_an_unknown_variable_is_refused_with_the_nearest_legal_name(monkeypatch):
    monkeypatch.setenv("TANDEM_TARGET_CACHE_ROW", "1")
    with pytest.raises(BadConfig, match="TANDEM_TARGET_CACHE_ROW; did you mean TANDEM_TARGET_CACHE_ROWS"):
        load(DrafterSettings, flags={})


def test_variables_that_kubernetes_sets_for_a_service_named_tandem_are_no_settings(monkeypatch):
    for name in ("TANDEM_PORT", "TANDEM_TARGET_SERVICE_HOST", "TANDEM_GATEWAY_PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:8000")
    load(DrafterSettings, flags={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[target]\nqeue = 1\n", "unknown setting target.qeue; did you mean target.queue"),
        ("[targt]\nqueue = 1\n", r"unknown table targt; did you mean target\?"),
        ("target = 1\n", "target must be a table"),
        ("[target\n", "config must be a readable TOML file"),
    ],
)
def test_a_mistake_in_the_file_is_named(file, text, message):
    with pytest.raises(BadConfig, match=message):
        load(TargetSettings, flags={}, file=file(text))


def test_a_file_that_is_absent_is_refused(tmp_path):
    with pytest.raises(BadConfig, match="config must be a readable TOML file"):
        load(TargetSettings, flags={}, file=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("kind", "name", "value", "legal"),
    [
        (TargetSettings, "cache_rows", 15, "an integer from 16 to"),
        (TargetSettings, "cache_rows", "many", "an integer from 16 to"),
        (TargetSettings, "cache_rows", 64.5, "an integer from 16 to"),
        (TargetSettings, "cache_rows", True, "an integer from 16 to"),
        (TargetSettings, "max_draft_tokens", 16, "an integer from 1 to 15"),
        (TargetSettings, "grace_s", float("nan"), "a number from 0 to 3600"),
        (TargetSettings, "grace_s", "nan", "a number from 0 to 3600"),
        (TargetSettings, "draft_timeout_ms", 0, "a number above 0 to 60000"),
        (TargetSettings, "draft_timeout_ms", float("inf"), "a number above 0 to 60000"),
        (TargetSettings, "dtype", "fp16", "bf16 or fp32"),
        (TargetSettings, "listen", "127.0.0.1", "HOST:PORT"),
        (TargetSettings, "drafter", "localhost:70000", "HOST:PORT"),
        (TargetSettings, "model_name", "", "text that is not empty"),
        (DrafterSettings, "modes", [], "one or more of ngram, mtp, dflash, dflash2"),
        (DrafterSettings, "modes", "ngram,eagle", "one or more of ngram, mtp, dflash, dflash2"),
        (DrafterSettings, "dflash_draws", "target", "argmax or independent or coupled"),
        (DrafterSettings, "dtype", "int8", "bf16 or fp32"),
        (DrafterSettings, "modes", "ngram,ngram", "one or more of ngram, mtp, dflash, dflash2"),
        (GatewaySettings, "target", 8000, "HOST:PORT"),
    ],
)
def test_a_bad_value_is_refused_with_the_setting_and_its_legal_values(kind, name, value, legal):
    with pytest.raises(BadConfig, match=rf"^\w+\.{name} must be {legal}"):
        load(kind, flags={"target": "127.0.0.1:1", name: value} if kind is GatewaySettings else {name: value})


def test_a_required_setting_is_asked_for():
    with pytest.raises(BadConfig, match=r"gateway\.target is required: HOST:PORT"):
        load(GatewaySettings, flags={})


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(BadConfig, match=r"drafter: ngram_min must be at most ngram_max \(8\), not 9"):
        load(DrafterSettings, flags={"ngram_min": 9})


def test_every_mistake_is_told_at_once():
    with pytest.raises(BadConfig, match=r"target\.dtype must .*; target\.queue must"):
        load(TargetSettings, flags={"queue": -1, "dtype": "int8"})


@pytest.mark.parametrize("kind", ROLES.values())
def test_every_setting_has_a_meaning(kind):
    assert all(field.description for field in kind.model_fields.values())
