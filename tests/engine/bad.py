"""Ways to spoil a checkpoint, and what has to come of it."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from services.engine.engine import Engine
from services.errors import BadCheckpoint

WEIGHTS = "model.safetensors"


def refuses(folder, *words):
    """`check` and `load` refuse alike, naming `words`."""
    with pytest.raises(BadCheckpoint) as refusal:
        Engine.check(folder)
    with pytest.raises(BadCheckpoint):
        Engine.load(folder, dtype=torch.float32, cache_rows=64)
    for word in words:
        assert word in str(refusal.value)


def edit_tensors(folder, **values):
    """None drops a tensor. Names are written with __ for dots."""
    tensors = load_file(folder / WEIGHTS)
    for name, value in values.items():
        tensors.pop(name.replace("__", "."), None)
        if value is not None:
            tensors[name.replace("__", ".")] = value
    save_file(tensors, folder / WEIGHTS)
