"""What the user sees of three processes."""

import asyncio
import io
import sys

import pytest

from services.supervisor.child import Child, Program
from services.supervisor.log import Log
from tests.supervisor.scripted_programs import Heard


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_every_line_says_who_wrote_it():
    stream = io.StringIO()
    Log(stream).line("target", "loading")
    Log(stream).line("gateway", "listening")
    assert stream.getvalue() == "target  | loading\ngateway | listening\n"


def test_a_terminal_gets_colours_unless_it_asks_for_none(monkeypatch):
    stream = Terminal()
    Log(stream).line("target", "loading")
    assert stream.getvalue() == "\x1b[36mtarget  |\x1b[0m loading\n"
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Log(stream).line("target", "loading")
    assert stream.getvalue() == "target  | loading\n"


def test_a_reader_that_leaves_takes_nobody_along():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    Log(Gone()).line("target", "loading")


@pytest.mark.anyio
async def test_long_lines_broken_characters_and_stray_output_are_all_shown():
    script = r"""
import sys
sys.stderr.buffer.write(b"x" * 300_000 + b"\n" + b"caf\xe9\r\nno newline")
print("not an address")
print("[1]")
"""
    log, addresses = Heard(), {}
    child = await Child.start(Program(role="drafter", command=lambda _: [sys.executable, "-c", script]), addresses, log)
    assert await asyncio.wait_for(child.ended(), 30) == "ended with status 0"
    assert addresses == {}
    expected = ["x" * 300_000, "caf\ufffd", "no newline", "not an address", "[1]"]
    assert sorted(log.lines) == sorted(("drafter", line) for line in expected)
