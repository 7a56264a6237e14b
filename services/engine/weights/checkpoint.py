"""The tensors of a Hugging Face folder: one model.safetensors, or shards named by an index.

The safetensors library parses the files and refuses headers that lie about them; names, shapes and types are held here
against what the model family asks for, so that nothing is allocated for a file that does not fit.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from services.engine.weights.config import Keys
from services.errors import BadCheckpoint

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("BF16", "F16", "F32")


class Checkpoint:
    """Open files and the place of every tensor in them."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._files: dict[str, Any] = {name: _open(path) for name, path in paths.items()}
        self._home = {tensor: name for name, file in self._files.items() for tensor in file.keys()}  # noqa: SIM118

    @classmethod
    def open(cls, folder: Path) -> Self:
        if not folder.is_dir():
            raise BadCheckpoint(f"{folder} is not a folder")
        if (folder / SINGLE).exists():
            return cls({SINGLE: folder / SINGLE})
        if (folder / INDEX).exists():
            return cls._sharded(folder)
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
            raise BadCheckpoint(f"{folder} has only pickled weights, which can run code; convert them to safetensors")
        raise BadCheckpoint(f"{folder} has neither {SINGLE} nor {INDEX}")

    @classmethod
    def _sharded(cls, folder: Path) -> Self:
        index = Keys.read(folder / INDEX).table("weight_map")
        homes = {tensor: index.text(tensor) for tensor in index}
        if not homes:
            raise BadCheckpoint(f"{folder / INDEX} names no tensors")
        for shard in set(homes.values()):
            if Path(shard).name != shard:
                raise BadCheckpoint(f"{INDEX} names {shard!r}, which is not a file of the folder")
        checkpoint = cls({shard: folder / shard for shard in sorted(set(homes.values()))})
        for tensor, shard in homes.items():
            if checkpoint._home.get(tensor) != shard:
                raise BadCheckpoint(f"{shard} lacks {tensor}, which {INDEX} says it has")
        for tensor, shard in checkpoint._home.items():
            if tensor not in homes:
                raise BadCheckpoint(f"{shard} has {tensor}, which {INDEX} does not name")
        return checkpoint

    def __contains__(self, tensor: str) -> bool:
        return tensor in self._home

    def has(self, prefix: str) -> bool:
        """Whether any tensor's name begins so."""
        return any(tensor.startswith(prefix) for tensor in self._home)

    def check(self, shapes: Mapping[str, tuple[int, ...]], ignored: Callable[[str], bool]) -> None:
        """Names both ways, then shapes and types. Tensors that `ignored` accepts may be there."""
        if missing := shapes.keys() - self._home:
            raise BadCheckpoint(f"{', '.join(self._paths)} lacks {_some(missing)}")
        if extra := [name for name in self._home.keys() - shapes.keys() if not ignored(name)]:
            raise BadCheckpoint(f"{self._home[min(extra)]} has {_some(extra)}, for which the model has no place")
        for name, shape in shapes.items():
            found = self._files[self._home[name]].get_slice(name)
            if tuple(found.get_shape()) != shape:
                raise BadCheckpoint(
                    f"{self._home[name]}: {name} has shape {found.get_shape()}, config.json asks for {[*shape]}"
                )
            if found.get_dtype() not in FLOATS:
                raise BadCheckpoint(
                    f"{self._home[name]}: {name} is stored as {found.get_dtype()}; legal are {', '.join(FLOATS)}"
                )

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The type as which a tensor is stored (`BF16`, `I64`, ...) and its shape."""
        found = self._files[self._home[name]].get_slice(name)
        return found.get_dtype(), tuple(found.get_shape())

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """A copy: the file may change on disk while the model runs."""
        tensor: Tensor = self._files[self._home[name]].get_tensor(name)
        return tensor.to(dtype, copy=True)

    def hash(self) -> str:
        """Of all bytes of all files."""
        digest = hashlib.sha256()
        for name, path in self._paths.items():
            with path.open("rb") as file:
                digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError as error:
        raise BadCheckpoint(f"{path} does not exist, and {INDEX} names it") from error
    except (OSError, SafetensorError) as error:
        raise BadCheckpoint(f"{path} is damaged: {error}") from error


def _some(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"{first} and {len(others)} more" if others else first
