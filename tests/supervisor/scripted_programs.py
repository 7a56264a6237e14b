"""Real processes that do what a test says, and a log that a test can wait for."""

import asyncio
import os
import signal
import sys

from services.supervisor.child import Program
from services.supervisor.log import Log

SCRIPT = """
import json, os, signal, sys
role, address, at_start, at_term = sys.argv[1:]
def say(text):
    print(text, file=sys.stderr, flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
if at_start == "fails":
    say("cannot start")
    sys.exit(3)
if at_start == "listens":
    print(json.dumps({"role": role, "address": address.replace(":0", ":4711")}), flush=True)
say(f"{os.getpid()} {at_start} on {address}")
while signal.sigwait({signal.SIGTERM}):
    say("asked to end")
    if at_term == "ends":
        sys.exit(0)
"""


def program(role, *, vital=False, at_start="listens", at_term="ends"):
    def command(addresses):
        address = addresses.get(role, f"{role}:0")
        return [sys.executable, "-I", "-S", "-c", SCRIPT, role, address, at_start, at_term]

    return Program(role=role, command=command, vital=vital)


class Heard(Log):
    def __init__(self):
        super().__init__(sys.stderr)
        self.lines = []
        self._more = asyncio.Event()

    def line(self, source, text):
        self.lines.append((source, text))
        self._more.set()

    async def wait_for(self, source, part, count=1):
        """The `count`-th line of `source` that has `part` in it."""
        async with asyncio.timeout(30):
            while True:
                found = [text for of, text in self.lines if of == source and part in text]
                if len(found) >= count:
                    return found[count - 1]
                self._more.clear()
                await self._more.wait()

    async def pid(self, role, life=1):
        return int((await self.wait_for(role, "listens on", life)).split()[0])


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
