"""SIGTERM and SIGINT: in which order programs end, how long they may take, and what a second signal does."""

import signal

import pytest

from services.errors import Cancelled
from tests.supervisor.scripted_programs import exists, program

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_gateway_ends_first_and_the_drafter_last(supervised, number):
    run = supervised(program("drafter"), program("target", vital=True), program("gateway"))
    await run.up.wait()
    pids = [await run.log.pid(role) for role in ("drafter", "target", "gateway")]
    signal.raise_signal(number)
    await run.task
    assert [source for source, text in run.log.lines if text == "asked to end"] == ["gateway", "target", "drafter"]
    assert not any(map(exists, pids))


async def test_one_that_does_not_end_in_its_time_is_killed(supervised):
    run = supervised(program("drafter"), program("target", vital=True, at_term="ignores"), grace_s=0)
    await run.up.wait()
    pid = await run.log.pid("target")
    signal.raise_signal(signal.SIGTERM)
    await run.task
    assert not exists(pid)


async def test_a_second_signal_kills_at_once(supervised):
    run = supervised(program("drafter", at_term="ignores"), program("target", vital=True, at_term="ignores"))
    await run.up.wait()
    pids = [await run.log.pid(role) for role in ("drafter", "target")]
    signal.raise_signal(signal.SIGINT)
    await run.log.wait_for("target", "asked to end")
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Cancelled):
        await run.task
    assert not any(map(exists, pids))


async def test_a_signal_during_the_start_stops_what_has_started(supervised):
    silent = program("target", vital=True, at_start="is silent")
    run = supervised(program("drafter"), silent, program("gateway"))
    pid = await run.log.pid("drafter")
    await run.log.wait_for("target", "is silent")
    signal.raise_signal(signal.SIGTERM)
    await run.task
    assert not exists(pid)
    assert not any(source == "gateway" for source, text in run.log.lines)
