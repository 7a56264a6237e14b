"""A program that dies: who is started again, who takes the others along, and that nobody is left behind."""

import os
import select
import signal
import subprocess
import sys

import pytest

from services.errors import Unavailable
from tests.supervisor.scripted_programs import exists, kill, program

pytestmark = pytest.mark.anyio


async def test_each_starts_when_the_one_before_listens(supervised):
    run = supervised(program("drafter"), program("target", vital=True), program("gateway"))
    await run.up.wait()
    assert run.addresses == {"drafter": "drafter:4711", "target": "target:4711", "gateway": "gateway:4711"}


@pytest.mark.parametrize("role", ["drafter", "gateway"])
async def test_a_dead_one_comes_back_on_its_old_address_after_ever_longer_waits(supervised, role):
    run = supervised(program(role))
    for life in range(1, 8):
        kill(await run.log.pid(role, life))
    assert (await run.log.wait_for(role, "listens on", 8)).endswith(f"{role}:4711")
    assert run.waits == [1, 2, 4, 8, 16, 30, 30]
    assert await run.log.wait_for("tandem", f"the {role} was killed by SIGKILL; it starts again in 30 s")


async def test_after_a_long_life_the_first_wait_is_short_again(supervised):
    run = supervised(program("drafter"))
    kill(await run.log.pid("drafter", 1))
    kill(await run.log.pid("drafter", 2))
    pid = await run.log.pid("drafter", 3)
    run.now = 31.0
    kill(pid)
    await run.log.pid("drafter", 4)
    assert run.waits == [1, 2, 1]


async def test_the_death_of_the_target_ends_everything(supervised):
    run = supervised(program("drafter"), program("target", vital=True), program("gateway"))
    await run.up.wait()
    pids = [await run.log.pid(role) for role in ("drafter", "target", "gateway")]
    kill(pids[1])
    with pytest.raises(Unavailable, match="the target was killed by SIGKILL"):
        await run.task
    assert not any(map(exists, pids))


async def test_one_that_ends_before_it_listens_is_not_tried_again(supervised):
    run = supervised(program("drafter"), program("target", vital=True, at_start="fails"), program("gateway"))
    with pytest.raises(Unavailable, match="the target ended with status 3 before it was listening"):
        await run.task
    assert not exists(await run.log.pid("drafter"))
    assert ("target", "cannot start") in run.log.lines
    assert run.waits == []


def test_a_killed_supervisor_leaves_no_process_behind():
    driver = """
import asyncio, sys
from services.supervisor.backoff import Backoff
from services.supervisor.log import Log
from services.supervisor.supervisor import Supervisor
from tests.supervisor.scripted_programs import program
async def up(addresses):
    print("up", flush=True)
programs = [program(role, at_term="ignores") for role in ("drafter", "target", "gateway")]
asyncio.run(Supervisor(programs, log=Log(sys.stdout), backoff=lambda: Backoff(1, 30), grace_s=30).run(up))
"""
    with subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True) as supervisor:
        pids = []
        while len(pids) < 3:
            line = supervisor.stdout.readline()
            if "listens on" in line:
                pids.append(int(line.split("|")[1].split()[0]))
        ends = [os.pidfd_open(pid) for pid in pids]
        supervisor.send_signal(signal.SIGKILL)
    for end in ends:
        assert select.select([end], [], [], 30)[0], "a child outlived its supervisor"
        os.close(end)
