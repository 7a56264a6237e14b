from contextlib import asynccontextmanager

import pytest

from tests.gateway.peers import running
from tests.gateway.scripted_target import FILES, ScriptedTarget, ends


def hello(request):
    return [ends("Hello")]


@pytest.fixture(scope="module")
async def shared(one_event_loop):
    """One gateway for a module's tests: it must be as good as new after each."""
    async with running(ScriptedTarget(hello)) as peers:
        yield peers


@pytest.fixture
def gateway(shared):
    """`async with gateway(script) as peers`: a gateway before a target that plays `script`; one of its own when
    it is changed for good, or has settings."""

    @asynccontextmanager
    async def serve(script=hello, *, files=FILES, own=False, **settings):
        if files is not FILES or own or settings:
            async with running(ScriptedTarget(script, files=files), **settings) as peers:
                yield peers
            return
        shared.target.play(script)
        yield shared
        for call in shared.target.calls:
            await call.ended.wait()

    return serve
