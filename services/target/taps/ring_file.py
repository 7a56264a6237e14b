"""The file behind a tap ring: it has a name only from before Hello until after Welcome, and its memory only while
somebody maps it.

It gets its name when it is complete and locked, and its maker's death gives up the lock. So a file with such a name
that can be locked is of a process that is gone.
"""

import fcntl
import logging
import mmap
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path

from services.wire.ring import NAME

log = logging.getLogger(__name__)


class RingFile:
    """Made on any thread by `create`; `discard` may come before, meanwhile or after, and leaves no name behind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"tandem-taps-{uuid.uuid4().hex}"
        self._discarded = False
        self._file: int | None = None
        self._lock = threading.Lock()

    def create(self, size: int) -> mmap.mmap:
        """The memory of a new file. Raises OSError where there is no room, or the folder cannot have such a file."""
        with self._lock:
            if self._discarded:
                raise OSError("it is not wanted any more")
            self._file = os.open(self.path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._file, 0, size)
            memory = mmap.mmap(self._file, size)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.link(f"/proc/self/fd/{self._file}", self.path.name, dst_dir_fd=folder, follow_symlinks=True)
            finally:
                os.close(folder)
            return memory

    def discard(self) -> None:
        """Take the name away. Who mapped the memory keeps it."""
        with self._lock:
            self._discarded = True
            if self._file is not None:
                self.path.unlink(missing_ok=True)
                os.close(self._file)
                self._file = None


def sweep(folder: Path) -> None:
    """Remove ring files of processes that are gone."""
    for path in folder.iterdir():
        if NAME.fullmatch(path.name):
            with suppress(OSError):  # it lives, or belongs to somebody else, or was removed just now
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        log.info("removed %s, whose process is gone", path)
    finally:
        os.close(file)
