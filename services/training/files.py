"""Files that appear whole or not at all, however the process ends."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor

from services.errors import BadConfig


def write(path: Path, data: bytes) -> None:
    """Raises BadConfig when the folder cannot be written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise BadConfig(f"cannot write {path}: {error}") from error


def write_json(path: Path, value: object) -> None:
    write(path, (json.dumps(value, indent=2) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """The library writes metadata of several keys in any order: files to be compared have one."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write(path, safetensors.torch.save(whole, metadata=dict(metadata or {"format": "pt"})))


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
