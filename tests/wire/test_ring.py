"""Which ring files a drafter maps, and what it reads of them."""

import os
import struct
from pathlib import Path

import pytest
from tandem.v1.drafter_pb2 import Hello, TapRing
from tandem.v1.types_pb2 import DATA_TYPE_BFLOAT16, RingSlot, Tensor

from services.errors import BadConfig, InvalidRequest
from services.wire.codec import tensor_of
from services.wire.ring import mapped, tap_folder

SLOTS, SLOT_BYTES = 3, 4096
NAME = "tandem-taps-" + "0123456789abcdef" * 2


def write(path, *, size=SLOTS * SLOT_BYTES):
    """Slot i has generation 10 + i, and bytes that count up after its header."""
    slots = [struct.pack("<Q", 10 + index) + bytes(56) + bytes(range(256)) * 16 for index in range(SLOTS)]
    path.write_bytes(b"".join(slot[:SLOT_BYTES] for slot in slots)[:size])
    return path


def offer(path, *, slots=SLOTS, slot_bytes=SLOT_BYTES):
    return Hello(ring=TapRing(path=str(path), slots=slots, slot_bytes=slot_bytes))


def region(**rest):
    about = {"slot": 1, "generation": 11, "offset_bytes": 64 + 4, "size_bytes": 4} | rest
    return Tensor(dtype=DATA_TYPE_BFLOAT16, shape=[1, 2], ring=RingSlot(**about))


def test_a_region_is_read_without_a_copy_and_its_lease_ends_with_its_generation(tmp_path):
    path = write(tmp_path / NAME)
    with mapped(offer(path), tmp_path) as ring:
        tensor = tensor_of(region(), ring=ring)
        assert (tensor.dtype, tensor.shape, bytes(tensor.data)) == ("bf16", (1, 2), bytes([4, 5, 6, 7]))
        assert tensor.data.readonly
        head, rest = tensor_of(Tensor(dtype=1, shape=[2, 1], ring=region().ring), ring=ring).split(1)
        assert (bytes(head.data), bytes(rest.data)) == (bytes([4, 5]), bytes([6, 7]))
        with path.open("r+b") as file:
            file.seek(SLOT_BYTES + 64 + 4)
            file.write(b"new.")
            file.seek(0)
            file.write(struct.pack("<Q", 99))
        assert bytes(tensor.data) == b"new."
        assert head.lease.holds
        assert rest.lease.holds
        with path.open("r+b") as file:
            file.seek(SLOT_BYTES)
            file.write(struct.pack("<Q", 12))
        assert not tensor.lease.holds
        assert not rest.lease.holds
        with pytest.raises(InvalidRequest, match="does not carry generation 11") as refused:
            tensor_of(region(), ring=ring, field="feed.taps")
        assert refused.value.field == "feed.taps.ring.generation"


@pytest.mark.parametrize(
    ("rest", "field"),
    [
        ({"slot": 3}, "taps.ring"),
        ({"offset_bytes": 60}, "taps.ring"),
        ({"offset_bytes": SLOT_BYTES - 3}, "taps.ring"),
        ({"offset_bytes": 2**64 - 2}, "taps.ring"),
        ({"generation": 10}, "taps.ring.generation"),
        ({"size_bytes": 6}, "taps.ring"),
        ({"size_bytes": 2**40}, "taps.ring"),
    ],
)
def test_a_region_that_is_none_is_refused(tmp_path, rest, field):
    write(tmp_path / NAME)
    with mapped(offer(tmp_path / NAME), tmp_path) as own, pytest.raises(InvalidRequest) as refused:
        tensor_of(region(**rest), ring=own, field="taps")
    assert refused.value.field == field


def test_the_mapping_ends_with_the_stream(tmp_path):
    with mapped(offer(write(tmp_path / NAME)), tmp_path) as ring:
        pass
    with pytest.raises(ValueError, match="released"):
        tensor_of(region(), ring=ring)


def test_who_still_holds_a_region_when_the_stream_ends_may_read_it(tmp_path):
    with mapped(offer(write(tmp_path / NAME)), tmp_path) as ring:
        tensor = tensor_of(region(), ring=ring)
    assert bytes(tensor.data) == bytes([4, 5, 6, 7])


def outside(folder):
    (folder / "other").mkdir()
    return offer(write(folder / "other" / NAME))


def upwards(folder):
    (folder / "other").mkdir()
    write(folder / NAME)
    return offer(f"{folder}/other/../{NAME}")


def link(folder):
    write(folder / "file")
    (folder / NAME).symlink_to(folder / "file")
    return offer(folder / NAME)


def pipe(folder):
    os.mkfifo(folder / NAME)
    return offer(folder / NAME)


def directory(folder):
    (folder / NAME).mkdir()
    return offer(folder / NAME)


NOT_MAPPED = {
    "no ring": lambda folder: Hello(),
    "a file that is not there": lambda folder: offer(folder / NAME),
    "a file in another folder": outside,
    "a file by way of another folder": upwards,
    "a file with another name": lambda folder: offer(write(folder / "passwd")),
    "a link": link,
    "a pipe": pipe,
    "a folder": directory,
    "a file that is too short": lambda folder: offer(write(folder / NAME, size=SLOT_BYTES)),
    "a file that is too long": lambda folder: offer(write(folder / NAME), slots=SLOTS - 1),
    "no slots": lambda folder: offer(write(folder / NAME, size=0), slots=0),
    "slots without room": lambda folder: offer(write(folder / NAME, size=64), slots=1, slot_bytes=64),
    "a size that overflows": lambda folder: offer(write(folder / NAME), slots=2**32 - 1, slot_bytes=2**63),
    "a name with a zero byte": lambda folder: offer(f"{folder}/{NAME[:-1]}\0"),
}


@pytest.mark.parametrize("make", NOT_MAPPED.values(), ids=NOT_MAPPED)
def test_what_is_no_ring_of_the_folder_is_not_mapped_and_no_error(tmp_path, make):
    with mapped(make(tmp_path), tmp_path) as ring:
        assert ring is None


def test_without_a_folder_nothing_is_mapped(tmp_path):
    with mapped(offer(write(tmp_path / NAME)), None) as ring:
        assert ring is None


def test_the_folder_is_the_one_that_is_set_and_must_be_there(tmp_path, monkeypatch):
    assert tap_folder(tmp_path) == tmp_path
    assert tap_folder(Path("none")) is None
    with pytest.raises(BadConfig, match="legal are a folder in a tmpfs, or `none`"):
        tap_folder(tmp_path / "missing")
    monkeypatch.setattr("services.wire.ring.USUAL_FOLDER", tmp_path)
    assert tap_folder(None) == tmp_path
    monkeypatch.setattr("services.wire.ring.USUAL_FOLDER", tmp_path / "missing")
    assert tap_folder(None) is None
