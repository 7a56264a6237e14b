"""No drafter can change an answer: whatever it says, the tokens are those of plain decoding."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.target.request import Request
from services.target.scheduler import Bounds
from services.target.sink import Update
from tests.target.harness import (
    HASTY,
    PATIENT,
    System,
    plain_answer,
    request,
    ring_folder,
    system,
    tokens,
    truth_of,
)
from tests.target.scripted_drafter import DFLASH, DFLASH2, KINDS, MTP, NGRAM, ScriptedDrafter
from tests.target.scripted_model import VOCAB, ScriptedModel

pytestmark = pytest.mark.anyio

ids = st.integers(0, VOCAB - 1)
sampling = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 1e-7, 0.7, 1.0, 2.0]), "seed": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "top_k": st.integers(1, VOCAB),
        "top_p": st.sampled_from([1e-9, 0.3, 0.95]),
        "min_p": st.sampled_from([0.05, 0.5]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 0.5, 2.0]),
        "frequency_penalty": st.sampled_from([-0.5, 0.5, 2.0]),
        "logit_bias": st.dictionaries(ids, st.sampled_from([-100.0, -1.0, 0.5, 100.0]), max_size=4),
        "banned": st.frozensets(ids, max_size=4),
        "min_tokens": st.integers(0, 12),
        "choice": st.integers(0, 3),
        "logprobs": st.integers(0, 3),
    },
)


@st.composite
def requests(draw) -> Request:
    return request(
        draw(st.lists(ids, min_size=1, max_size=40)),
        draw(st.integers(1, 40)),
        mode=draw(st.sampled_from(["ngram", "ngram", "auto", "auto", "none", "mtp", "dflash", "dflash2"])),
        max_draft_tokens=draw(st.none() | st.integers(1, 15)),
        stop_ids=draw(st.frozensets(ids, max_size=2)),
        stop_strings=draw(st.lists(st.text("abcd01", min_size=1, max_size=2), max_size=2)),
        **draw(sampling),
    )


scripts = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 15)), max_size=30)
bounds = st.builds(
    Bounds,
    max_sequences=st.integers(1, 6),
    max_waiting=st.just(64),
    prefill_chunk=st.integers(1, 40),
    round_tokens=st.integers(1, 64),
)


@dataclass(frozen=True)
class Offer:
    """What the drafter process has, and how much of the target's taps is retained in which way."""

    modes: tuple[int, ...] = (NGRAM,)
    tap_pages: int = 100
    page_bytes: int = 1024
    ring: bool = True


offers = st.builds(
    Offer,
    modes=st.sampled_from([(NGRAM,), (NGRAM, MTP), (DFLASH, MTP), (NGRAM, MTP, DFLASH, DFLASH2)]),
    tap_pages=st.sampled_from([100, 8, 3]),
    page_bytes=st.sampled_from([64 + 128, 512, 2048]),
    ring=st.booleans(),
)


def check_report(asked: Request, updates: list[Update]) -> None:
    counters = updates[-1].report.counters
    origins = Counter(kept.origin for update in updates for kept in update.kept)
    assert counters.by_origin == origins
    assert origins["first"] == 1
    assert counters.generated == len(tokens(updates)) <= asked.max_new
    assert origins["accepted"] == counters.total("accepted") <= counters.total("drafted")
    ended_inside = updates[-1].finish is not None and updates[-1].kept[-1].origin == "accepted"
    assert counters.total("rounds") == origins["correction"] + origins["bonus"] + ended_inside


async def run_scenario(
    asked: list[Request],
    script,
    limits: Bounds,
    leaving: dict[int, int],
    offer: Offer = Offer(),
    confidence: Callable[[int], list[float]] | None = None,
    **options,
) -> None:
    with ring_folder() as folder:
        drafter = ScriptedDrafter(truth_of(asked), iter(script), modes=offer.modes, tap_folder=folder)
        drafter.confidence = confidence
        await run_offer(asked, script, limits, leaving, offer, drafter, **options)
        assert not list(folder.iterdir())
    assert drafter.faults == []


async def run_offer(asked, script, limits, leaving, offer: Offer, drafter: ScriptedDrafter, **options) -> None:
    model = ScriptedModel(cache_rows=200)
    hasty = any(kind in ("late", "silent") for kind, _ in script)
    async with system(
        drafter,
        model=model,
        bounds=limits,
        patience=HASTY if hasty else PATIENT,
        tap_pages=offer.tap_pages,
        page_bytes=offer.page_bytes,
        tap_folder=drafter.tap_folder if offer.ring else None,
        **options,
    ) as running:
        leave = [leaving.get(index) for index in range(len(asked))]
        answers = await asyncio.gather(
            *(running.answer(each, leave_after=after) for each, after in zip(asked, leave, strict=True))
        )
        await running.settled()
        await taps_freed(running, drafter)
        check_answers(asked, answers)
        check_nothing_is_left(running)
        drafted = sum(each[-1].report.counters.total("drafted") for each in answers if each)
        assert drafted <= drafter.on_time


async def taps_freed(running: System, drafter: ScriptedDrafter) -> None:
    """Wait until the drafter has read the Closes, with the answers that it keeps for a round that never comes."""
    while running.link.taps.retained_bytes:
        drafter.late.set()
        await asyncio.sleep(0)


def check_answers(asked: list[Request], answers: list[list[Update]]) -> None:
    for each, updates in zip(asked, answers, strict=True):
        plain, got = plain_answer(each), tokens(updates)
        assert got == plain[: len(got)]
        if updates and updates[-1].finish is not None:
            assert got == plain
            check_report(each, updates)


def check_nothing_is_left(running: System) -> None:
    assert running.model.free_rows == running.model.cache_rows
    assert running.link.open_contexts == 0
    assert running.rounds.scheduler.idle


scenario = given(
    asked=st.lists(requests(), min_size=1, max_size=5),
    script=scripts,
    limits=bounds,
    leaving=st.dictionaries(st.integers(0, 4), st.integers(0, 6), max_size=2),
    offer=offers,
)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@scenario
async def test_no_drafter_can_change_the_answer(asked, script, limits, leaving, offer):
    await run_scenario(asked, script, limits, leaving, offer)


@pytest.mark.full
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@scenario
async def test_no_drafter_can_change_the_answer_whatever_hypothesis_thinks_of(asked, script, limits, leaving, offer):
    await run_scenario(asked, script, limits, leaving, offer)
