"""Fixtures for every layer, and the time each layer took."""

from collections import Counter
from pathlib import Path

import pytest

from services.config.folders import cache_root
from services.errors import BadCheckpoint
from services.shipped.prepare import default_model


def pytest_addoption(parser):
    parser.addoption("--load-seconds", type=float, default=60, help="how long the load test loads (marked full)")


def pytest_terminal_summary(terminalreporter):
    seconds, count = Counter(), Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        folder = Path(report.nodeid).parts[1]
        seconds[folder] += report.duration
        count[folder] += report.when == "call"
    terminalreporter.section("time by folder")
    for folder, took in seconds.most_common():
        terminalreporter.write_line(f"{folder:<12} {count[folder]:>5} tests {took:>8.1f} s")


@pytest.fixture(scope="session")
def embedded_model():
    """The folder of the embedded model; `make test` prepares it."""
    try:
        return default_model(cache_root())
    except BadCheckpoint as missing:
        pytest.fail(str(missing))


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
async def one_event_loop(anyio_backend):
    """All async tests share a loop: gRPC's poller is one for the process, and events it still holds for a closed loop
    would fail whichever test comes next."""
    yield  # noqa: PT022  (the loop lives as long as the fixture)
