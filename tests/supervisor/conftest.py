import asyncio
from types import SimpleNamespace

import pytest

from services.supervisor.backoff import Backoff
from services.supervisor.supervisor import Supervisor
from tests.supervisor.scripted_programs import Heard


@pytest.fixture
async def supervised():
    """Start programs under a supervisor. Its clock is `run.now`, and `run.waits` are its pauses; none is real."""
    runs = []

    def start(*programs, grace_s=30):
        run = SimpleNamespace(log=Heard(), waits=[], now=0.0, up=asyncio.Event(), addresses=None)

        async def pause(seconds):
            run.waits.append(seconds)

        async def when_started(addresses):
            run.addresses = dict(addresses)
            run.up.set()

        supervisor = Supervisor(
            programs,
            log=run.log,
            backoff=lambda: Backoff(1, 30),
            grace_s=grace_s,
            sleep=pause,
            now=lambda: run.now,
        )
        run.task = asyncio.create_task(supervisor.run(when_started))
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.task.cancel()
    await asyncio.gather(*(run.task for run in runs), return_exceptions=True)
