"""The tap ring: a file in a tmpfs that target and drafter both map. Its layout, and the reader's side.

      | generation, zeros | payload ........ | generation, zeros | payload ....
      0                   HEADER_BYTES       slot_bytes

Only the target writes. A slot that it uses again gets the new generation before anything else, so a reader that finds
the old one after reading has read what was meant.
"""

import logging
import mmap
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tandem.v1.drafter_pb2 import Hello, TapRing
from tandem.v1.types_pb2 import RingSlot

from services.errors import BadConfig, InvalidRequest

log = logging.getLogger(__name__)

HEADER_BYTES = 64
NAME = re.compile(r"tandem-taps-[0-9a-f]{32}")
GENERATION = struct.Struct("<Q")

USUAL_FOLDER = Path("/dev/shm")
NO_FOLDER = Path("none")


def tap_folder(setting: Path | None) -> Path | None:
    """Where ring files are: the folder that was set, or /dev/shm where there is one. None: taps travel in messages.
    Raises BadConfig for a folder that is not there."""
    if setting is None:
        return USUAL_FOLDER if USUAL_FOLDER.is_dir() else None
    if setting == NO_FOLDER:
        return None
    if not setting.is_dir():
        raise BadConfig(f"tap_dir is {setting}, which is no folder; legal are a folder in a tmpfs, or `{NO_FOLDER}`")
    return setting


@dataclass(frozen=True, slots=True)
class Lease:
    """Bytes in a slot, which are what was meant while the slot carries `generation`."""

    memory: memoryview
    start: int
    generation: int

    @property
    def holds(self) -> bool:
        return bool(GENERATION.unpack_from(self.memory, self.start)[0] == self.generation)


@dataclass(frozen=True, slots=True)
class Ring:
    """A mapped ring, to read."""

    memory: memoryview
    slots: int
    slot_bytes: int

    def read(self, region: RingSlot, *, field: str) -> tuple[memoryview, Lease]:
        """The bytes of a region, without a copy."""
        begin, end = region.offset_bytes, region.offset_bytes + region.size_bytes
        if region.slot >= self.slots or begin < HEADER_BYTES or end > self.slot_bytes:
            raise InvalidRequest(
                f"bytes {begin} to {end} of slot {region.slot}; the ring has {self.slots} slots, "
                f"each with bytes {HEADER_BYTES} to {self.slot_bytes}",
                field=field,
            )
        start = region.slot * self.slot_bytes
        lease = Lease(self.memory, start, region.generation)
        if not lease.holds:
            raise InvalidRequest(
                f"slot {region.slot} does not carry generation {region.generation}", field=f"{field}.generation"
            )
        return self.memory[start + begin : start + end], lease


@contextmanager
def mapped(hello: Hello, folder: Path | None) -> Iterator[Ring | None]:
    """The ring that a target offers, while the body runs; None when it offers none, or one that cannot be had."""
    if not hello.HasField("ring"):
        yield None
        return
    try:
        memory = _map(hello.ring, folder)
    except (OSError, ValueError) as refusal:
        log.warning("the target's tap ring %s is not used (%s); taps travel in messages", hello.ring.path, refusal)
        yield None
        return
    view = memoryview(memory)
    try:
        yield Ring(view, hello.ring.slots, hello.ring.slot_bytes)
    finally:
        with suppress(BufferError):  # somebody holds a region still: the mapping goes with the last of them
            view.release()
            memory.close()


def _map(ring: TapRing, folder: Path | None) -> mmap.mmap:
    """Raises ValueError or OSError for anything but a ring file directly in `folder`."""
    if folder is None:
        raise ValueError("no tap_dir is set")
    path, size = Path(ring.path), ring.slots * ring.slot_bytes
    if path.parent != folder or not NAME.fullmatch(path.name):
        raise ValueError(f"not a tap ring's name, directly in {folder}")
    if not ring.slots or ring.slot_bytes <= HEADER_BYTES:
        raise ValueError(f"{ring.slots} slots of {ring.slot_bytes} bytes")
    # What is no file must not be waited for, nor followed.
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a file")
        if status.st_size != size:
            raise ValueError(f"{status.st_size} bytes, not {size}")
        return mmap.mmap(file, size, prot=mmap.PROT_READ)
    finally:
        os.close(file)
