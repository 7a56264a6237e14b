"""One running program: its log lines, the addresses it announces, its end."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from services.errors import Unavailable
from services.supervisor.leash import leashed
from services.supervisor.log import Log

Addresses = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run as `role`. It prints `{"role": ROLE, "address": HOST:PORT}` on stdout for each port it opens."""

    role: str
    command: Callable[[Addresses], Sequence[str]]  # given every address announced so far, its own of a former life too
    vital: bool = False  # when it ends, everything ends


class Child:
    """A process that dies with this one and reads no terminal signal: the supervisor says when and in which order."""

    def __init__(self, role: str, process: asyncio.subprocess.Process, log: Log, addresses: dict[str, str]) -> None:
        self.role = role
        self.pid = process.pid
        self._process = process
        self._log = log
        self._addresses = addresses
        self._announced = asyncio.Event()
        self._ended = asyncio.create_task(self._run())

    @classmethod
    async def start(cls, program: Program, addresses: dict[str, str], log: Log) -> Self:
        """What the child announces goes into `addresses`."""
        process = await asyncio.create_subprocess_exec(
            *leashed(program.command(addresses)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
        return cls(program.role, process, log, addresses)

    async def announced(self) -> None:
        """Wait for its address. Unavailable when it ends before."""
        waiting = asyncio.create_task(self._announced.wait())
        await asyncio.wait({waiting, self._ended}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._announced.is_set():
            raise Unavailable(f"the {self.role} {await self.ended()} before it was listening")

    async def ended(self) -> str:
        """Wait for its end, and say in words how it came."""
        code = await asyncio.shield(self._ended)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    async def stop(self, grace_s: float) -> None:
        """Ask it to end; kill it when it has not after `grace_s`."""
        self.signal(signal.SIGTERM)
        await asyncio.wait({self._ended}, timeout=grace_s)
        self.kill()
        await self._ended

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def _run(self) -> int:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        await asyncio.gather(self._listen(stdout), self._copy(stderr))
        return await self._process.wait()

    async def _listen(self, stdout: asyncio.StreamReader) -> None:
        async for line in _lines(stdout):
            try:
                message = json.loads(line)
                self._addresses[message["role"]] = message["address"]
            except (ValueError, TypeError, KeyError):
                self._log.line(self.role, line)
                continue
            if message["role"] == self.role:
                self._announced.set()

    async def _copy(self, stderr: asyncio.StreamReader) -> None:
        async for line in _lines(stderr):
            self._log.line(self.role, line)


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Lines of any length, which the reader's own `readline` does not allow."""
    rest = b""
    while chunk := await reader.read(65536):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
    if rest:
        yield rest.decode(errors="replace")
