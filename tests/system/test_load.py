"""Sixty-four clients with random departures for a while: nothing fails that nobody left, and nothing grows."""

from dataclasses import replace

import pytest

from bench.clients import Tally
from bench.holdings import Busy, Holdings, Process
from bench.load import ROLES, ROOMY, Result, run
from tests.system.running import tandem

NOTHING = Busy(answering=0, running=0, waiting=0, rows=0, contexts=0)
HELD = Holdings({role: Process(pid=7, memory_kib=100_000, descriptors=20, threads=9) for role in ROLES}, NOTHING)


@pytest.mark.full
@pytest.mark.anyio
async def test_a_crowd_that_comes_and_goes_leaves_nothing_behind(embedded_model, pytestconfig) -> None:
    with tandem(embedded_model, environment=ROOMY) as running:
        result = await run(running, pytestconfig.getoption("load_seconds"))
    assert result.complaints == []
    assert result.tally.finished > 0
    assert result.tally.left > 0


def complaints(end: Holdings, tally: Tally | None = None) -> list[str]:
    return Result(60, tally or Tally(), HELD, end).complaints


def target(**held: int) -> Holdings:
    """As before, but for what the target holds."""
    return replace(HELD, processes={**HELD.processes, "target": replace(HELD.processes["target"], **held)})


def test_as_much_as_before_is_no_growth() -> None:
    assert complaints(HELD) == []
    assert complaints(target(memory_kib=140_000, descriptors=24, threads=13)) == []


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (target(pid=8), "the target was started again"),
        (target(memory_kib=150_000), "the target grew from 100000 to 150000 KiB"),
        (target(descriptors=25), "the target went from 20 to 25 descriptors"),
        (target(threads=14), "the target went from 9 to 14 threads"),
        (replace(HELD, busy=replace(NOTHING, rows=12)), "12 rows are held after the end"),
        (replace(HELD, busy=replace(NOTHING, contexts=1)), "1 contexts are held after the end"),
    ],
)
def test_growth_is_told_by_what_grew(end: Holdings, words: str) -> None:
    assert complaints(end) == [words]


def test_an_error_that_nobody_asked_for_is_told() -> None:
    assert complaints(HELD, Tally(errors={"AssertionError: 500": 3})) == ["3 times AssertionError: 500"]
