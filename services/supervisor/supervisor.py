"""Keeps programs running: start in order, restart the dead, stop in the opposite order."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from services.errors import Cancelled, TandemError, Unavailable
from services.supervisor.backoff import Backoff
from services.supervisor.child import Addresses, Child, Program
from services.supervisor.log import Log

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Supervisor:
    """Programs are started one after another, each when the one before has announced its address."""

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        log: Log,
        backoff: Callable[[], Backoff],
        grace_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._programs = programs
        self._log = log
        self._backoff = backoff
        self._grace_s = grace_s
        self._sleep = sleep
        self._now = now
        self._addresses: dict[str, str] = {}
        self._children: dict[str, Child] = {}

    async def run(self, when_started: Callable[[Addresses], Awaitable[None]]) -> None:
        """Until a signal asks for the end: return when all have stopped. A second signal kills them: Cancelled.

        A vital program that ends, or any that ends before it was listening, stops the others: Unavailable.
        """
        with _signals() as received:
            keeping = asyncio.create_task(self._keep(when_started))
            asked = asyncio.create_task(received.get())
            try:
                await asyncio.wait({keeping, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._log.line("tandem", "stopping; a second signal kills")
                asked.cancel()
                keeping.cancel()
                await asyncio.wait({keeping})
                await self._stop(received)
        if not keeping.cancelled():
            await keeping

    async def _keep(self, when_started: Callable[[Addresses], Awaitable[None]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for program in self._programs:
                    child = await self._start(program)
                    await child.announced()
                    group.create_task(self._watch(program, child))
                await when_started(self._addresses)
        except* TandemError as errors:
            first = errors.exceptions[0]  # the group wraps even a single error
        else:
            return
        raise first

    async def _start(self, program: Program) -> Child:
        child = self._children[program.role] = await Child.start(program, self._addresses, self._log)
        return child

    async def _watch(self, program: Program, child: Child) -> None:
        backoff = self._backoff()
        while True:
            started = self._now()
            end = f"the {program.role} {await child.ended()}"
            if program.vital:
                raise Unavailable(end)
            wait_s = backoff.after(self._now() - started)
            self._log.line("tandem", f"{end}; it starts again in {wait_s:g} s")
            await self._sleep(wait_s)
            child = await self._start(program)

    async def _stop(self, received: "asyncio.Queue[int]") -> None:
        stopping = asyncio.create_task(self._stop_in_order())
        asked = asyncio.create_task(received.get())
        await asyncio.wait({stopping, asked}, return_when=asyncio.FIRST_COMPLETED)
        impatient = asked.done()
        asked.cancel()
        if impatient:
            for child in self._children.values():
                child.kill()
        await stopping
        if impatient:
            raise Cancelled("killed everything at the second signal")

    async def _stop_in_order(self) -> None:
        for program in reversed(self._programs):
            if child := self._children.get(program.role):
                await child.stop(self._grace_s)


@contextmanager
def _signals() -> "Iterator[asyncio.Queue[int]]":
    """Requests to stop, as they arrive."""
    loop, received = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, received.put_nowait, number)
    try:
        yield received
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
