"""Fixtures for every layer."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend):
    """All async tests share a loop: gRPC's poller is one for the process, and events it still holds for a closed loop
    would fail whichever test comes next."""
    yield
