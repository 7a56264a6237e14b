"""A ring's file has a name only while it is offered, and whoever dies when, nothing is left behind."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from services.target.taps.ring_file import RingFile, sweep
from tests.target.harness import ring_folder


@pytest.fixture
def folder():
    with ring_folder() as path:
        yield path


@contextmanager
def process(*arguments):
    command = [sys.executable, "-m", "tests.target.sharing_process", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def heard(started, word):
    """Read what a process says up to a line that begins with `word`; returns that line's last word."""
    for line in started.stdout:
        if line.startswith(word):
            return line.split()[-1]
    raise AssertionError(f"it ended before it said {word!r}")


def killed(started):
    started.kill()
    started.wait()


def test_a_file_has_a_name_from_its_creation_to_its_end_and_others_see_that_it_lives(folder):
    file = RingFile(folder)
    memory = file.create(3 * 4096)
    assert [path.name for path in folder.iterdir()] == [file.path.name]
    assert file.path.stat().st_size == len(memory) == 3 * 4096
    assert file.path.stat().st_mode & 0o777 == 0o600
    sweep(folder)
    assert file.path.exists()
    file.discard()
    file.discard()
    assert not list(folder.iterdir())
    memory[-1] = 7  # its memory is there as long as somebody maps it


def test_a_file_that_is_not_wanted_any_more_gets_no_name(folder):
    file = RingFile(folder)
    file.discard()
    with pytest.raises(OSError, match="not wanted"):
        file.create(4096)
    assert not list(folder.iterdir())


def test_no_room_leaves_nothing_behind(folder):
    file = RingFile(folder)
    with pytest.raises(OSError):  # noqa: PT011 - the system's own words
        file.create(2**50)
    file.discard()
    assert not list(folder.iterdir())


def test_a_sweep_takes_only_files_of_the_dead(folder):
    dead = folder / ("tandem-taps-" + "0" * 32)
    others = [folder / name for name in ("tandem-taps-0", "tandem-taps-" + "0" * 33, "pymp-1")]
    for path in (dead, *others):
        path.write_bytes(b"")
    link = folder / ("tandem-taps-" + "1" * 32)
    link.symlink_to(others[0])
    living = RingFile(folder)
    living.create(4096)
    sweep(folder)
    assert not dead.exists()
    assert all(path.exists() for path in (*others, link, living.path))
    living.discard()


def test_a_target_that_is_killed_before_welcome_leaves_a_file_that_the_next_start_sweeps(folder):
    with process("drafter", folder, "mute") as drafter:
        with process("target", heard(drafter, "listens"), folder) as target:
            path = heard(target, "offers")
            heard(drafter, "got Hello")
            sweep(folder)
            assert [str(each) for each in folder.iterdir()] == [path], "it lives"
            killed(target)
        assert [str(each) for each in folder.iterdir()] == [path]
        sweep(folder)
        assert not list(folder.iterdir())


def test_a_target_that_is_killed_after_welcome_leaves_no_file(folder):
    with process("drafter", folder) as drafter, process("target", heard(drafter, "listens"), folder) as target:
        heard(target, "welcomed")
        assert not list(folder.iterdir())
        killed(target)
        assert not list(folder.iterdir())


@pytest.mark.parametrize("when", ["before Welcome", "after Welcome"])
def test_a_drafter_that_is_killed_leaves_no_file(folder, when):
    mute = ["mute"] if when == "before Welcome" else []
    with process("drafter", folder, *mute) as drafter, process("target", heard(drafter, "listens"), folder) as target:
        heard(drafter, "got Hello")
        if not mute:
            heard(target, "welcomed")
        killed(drafter)
        if mute:
            heard(target, "withdrew")
        assert not list(folder.iterdir())
        assert target.poll() is None, "the target goes on"
