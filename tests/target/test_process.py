"""The target as a program: what it makes of its settings."""

import logging

import torch

from services.config.settings import TargetSettings
from services.target.process import load
from tests.engine.tiny import write
from tests.target.harness import tokenizer


def test_a_model_whose_folder_cannot_be_written_is_measured_only_once(tmp_path, monkeypatch, caplog):
    folder, cache, threads = tmp_path / "model", tmp_path / "cache", torch.get_num_threads()
    write(folder)
    (folder / ".tandem").write_text("in the way")
    monkeypatch.setenv("TANDEM_CACHE", str(cache))
    caplog.set_level(logging.INFO, logger="services.target.process")
    settings = TargetSettings(model=folder, dtype="fp32", threads=threads, cache_rows=64)
    said = []
    for _ in range(2):
        caplog.clear()
        load(settings, tokenizer())
        said.append({word for word in ("numerics", "weights", "check") if f"loading: {word} " in caplog.text})
    assert len(list(cache.glob("numerics/*.json"))) == 1
    assert said == [{"numerics", "weights", "check"}, {"weights"}]
