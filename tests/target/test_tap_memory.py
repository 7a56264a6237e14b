"""Too little memory for taps costs drafts, never a request; and what is on its way to a drafter is not overwritten."""

import asyncio
import threading
from dataclasses import replace
from itertools import chain, repeat

import pytest

from services.target.link.contexts import Contexts
from services.target.scheduler import Bounds
from tests.target.harness import PATIENT, plain_answer, request, ring_folder, system, tokens, truth_of
from tests.target.recording_drafter import RecordingDrafter, recording
from tests.target.scripted_drafter import DFLASH, MTP, NGRAM, ScriptedDrafter
from tests.target.scripted_model import LAYERS, ScriptedModel, tap

pytestmark = pytest.mark.anyio

PROMPT = tuple(range(20))
ROW = 8 * 4
"""Bytes of one tap."""


def page(positions, taps=1):
    return 64 + positions * taps * ROW


async def answered(asked, drafter, **rest):
    async with system(drafter, **rest) as running, asyncio.timeout(60):
        answers = await asyncio.gather(*map(running.answer, asked))
        await running.settled()
        assert [tokens(each) for each in answers] == [plain_answer(each) for each in asked]
        while running.link.taps.retained_bytes:  # noqa: ASYNC110 - the Releases that are still on their way
            await asyncio.sleep(0)
    assert drafter.faults == []
    return [each[-1].report for each in answers]


def opened(drafter):
    """(sequence, epoch) -> the modes of each Open."""
    opens = [each.open for each in drafter.requests if each.HasField("open")]
    return {(each.sequence, each.epoch): tuple(each.modes) for each in opens}


@pytest.mark.parametrize("ring", [True, False], ids=["ring", "inline"])
async def test_a_sequence_whose_taps_found_no_room_decodes_plainly_and_says_memory(ring):
    asked = request(PROMPT, 20, mode="mtp")
    drafter = ScriptedDrafter(truth_of([asked]), iter([]), modes=(MTP,))
    # Nothing is acknowledged before the first page is full: the drafter is not asked beside a prefill.
    with ring_folder() as folder:
        drafter.tap_folder = folder
        [report] = await answered(
            [asked], drafter, tap_pages=1, page_bytes=page(4), tap_folder=folder if ring else None
        )
    assert (report.resolved.mode, report.resolved.reason) == ("none", "memory")
    assert report.counters.by_origin == {"first": 1, "plain": 19}


async def test_auto_goes_on_with_the_drafter_that_needs_no_taps_in_a_new_epoch():
    asked = request(PROMPT, 30, mode="auto")
    drafter = ScriptedDrafter(truth_of([asked]), iter([]), modes=(NGRAM, MTP))
    [report] = await answered([asked], drafter, tap_pages=1, page_bytes=page(12))
    assert report.counters.by_mode["ngram"].accepted > 10
    assert opened(drafter) == {(1, 1): (NGRAM, MTP), (1, 2): (NGRAM,)}


async def test_a_sequence_that_runs_out_of_room_while_it_decodes_notes_the_switch():
    asked = [request([index, *PROMPT], 60, mode="mtp", max_draft_tokens=3) for index in range(2)]
    # Each has a page. Who fills it first has confirmed no whole page then.
    drafter = ScriptedDrafter(truth_of(asked), repeat(("right", 3)), modes=(MTP,))
    reports = await answered(asked, drafter, tap_pages=2, page_bytes=page(40))
    switches = [(each.origin, each.to, each.reason) for report in reports for each in report.counters.switches]
    assert set(switches) == {("mtp", "none", "memory")}
    assert all(report.resolved.mode == "mtp" for report in reports)


async def test_confirmed_taps_make_room_and_their_sequence_goes_on():
    asked = request(PROMPT, 100, mode="mtp", max_draft_tokens=4)
    drafter = ScriptedDrafter(truth_of([asked]), repeat(("right", 4)), modes=(MTP,))
    [report] = await answered([asked], drafter, tap_pages=4, page_bytes=page(10))
    assert report.counters.switches == []
    assert report.counters.total("accepted") > 70
    assert opened(drafter) == {(1, 1): (MTP,)}


async def test_who_gave_up_confirmed_taps_cannot_be_fed_again_after_a_restart():
    asked = request(PROMPT, 100, mode="auto", max_draft_tokens=4)
    script = chain([("right", 4)] * 12, [("die", 0)], repeat(("right", 4)))
    drafter = ScriptedDrafter(truth_of([asked]), script, modes=(NGRAM, MTP))
    [report] = await answered([asked], drafter, tap_pages=4, page_bytes=page(10))
    opens = [each.open for each in drafter.requests if each.HasField("open")]
    assert [tuple(each.modes) for each in opens] == [(NGRAM, MTP), (NGRAM,)]
    assert report.counters.by_mode["ngram"].accepted > 10


async def test_a_drafter_that_lost_what_is_not_retained_any_more_is_not_asked_again():
    asked = request(PROMPT, 100, mode="mtp", max_draft_tokens=4)
    script = chain([("right", 4)] * 12, [("behind", 0)], repeat(("right", 4)))
    drafter = ScriptedDrafter(truth_of([asked]), script, modes=(MTP,))
    [report] = await answered([asked], drafter, tap_pages=4, page_bytes=page(10))
    [*_, last] = report.counters.switches
    assert (last.origin, last.to, last.reason) == ("mtp", "none", "memory")


async def test_a_refill_on_its_way_is_catching_up():
    asked = request(PROMPT, 60, mode="mtp", max_draft_tokens=1)
    script = chain([("right", 1)] * 3, [("behind", 0)], repeat(("right", 1)))
    drafter = ScriptedDrafter(truth_of([asked]), script, modes=(MTP,))
    [report] = await answered([asked], drafter)
    assert all(each.reason in ("catching_up", None) for each in report.counters.switches)
    assert report.counters.total("accepted") > 15
    assert drafter.fed_taps > len(PROMPT) + 60, "what was lost was fed again"


async def test_taps_are_retained_for_a_request_that_begins_while_the_drafter_restarts():
    asked = [request([index, *PROMPT], 40, mode="mtp", max_draft_tokens=3) for index in range(2)]
    drafter, here = ScriptedDrafter(truth_of(asked), iter([]), modes=(MTP,)), threading.Event()
    async with system(drafter) as running:
        link = running.link
        await running.answer(asked[0])
        del running.rounds._plan  # rounds do not wait for it
        link._call.cancel()
        while link.up.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not link.drafters
        running.model.on_forward = here.wait
        answering = asyncio.create_task(running.answer(asked[1]))
        while not link.taps.retained_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await link.up.wait()
        here.set()
        updates = await answering
        await running.settled()
    assert tokens(updates) == plain_answer(asked[1])
    assert drafter.faults == []
    [second] = [each.open for each in drafter.requests if each.HasField("open") and each.open.sequence == 2]
    assert list(second.modes) == [MTP]


async def test_sequences_of_different_modes_share_a_batch():
    asked = [request([3, *PROMPT], 30, mode="ngram"), request([4, *PROMPT], 30, mode="auto")]
    drafter = ScriptedDrafter(truth_of(asked), iter([]), modes=(NGRAM, MTP))
    model = ScriptedModel()
    reports = await answered(asked, drafter, model=model)
    assert opened(drafter) == {(1, 1): (NGRAM,), (2, 1): (NGRAM, MTP)}
    assert set(reports[0].counters.by_mode) == {"ngram"}
    assert set(reports[1].counters.by_mode) == {"mtp"}
    assert set(model.tapped) <= {((), True), ((), False)}
    assert ((), True) in model.tapped


@pytest.mark.parametrize("mode", ["ngram", "none"])
async def test_who_needs_no_taps_pays_for_none(mode):
    asked = request(PROMPT, 30, mode=mode)
    drafter = ScriptedDrafter(truth_of([asked]), iter([]), modes=(NGRAM, MTP, DFLASH))
    model = ScriptedModel()
    await answered([asked], drafter, model=model)
    assert set(model.tapped) == {((), False)}


async def test_a_position_that_fits_no_page_is_memory_too():
    asked = request(PROMPT, 10, mode="dflash")
    drafter = ScriptedDrafter(truth_of([asked]), iter([]), modes=(DFLASH,))
    [report] = await answered([asked], drafter, page_bytes=page(1))
    assert (report.resolved.mode, report.resolved.reason) == ("none", "memory")


async def after_a_swap(before, after, mode):
    """The report of a request during which the drafter process is swapped for one with other drafters, and what was
    fed to that."""
    asked = request(PROMPT, 60, mode=mode, max_draft_tokens=3)
    drafter = ScriptedDrafter(truth_of([asked]), chain([("right", 3)] * 3, [("die", 0)], repeat(("right", 3))))
    drafter.modes = before

    def swap(history):
        if drafter.turns == 4:
            drafter.modes = after
        return truth(history)

    truth, drafter.truth = drafter.truth, swap
    with ring_folder() as folder:
        drafter.tap_folder = folder
        [report] = await answered([asked], drafter, tap_folder=folder)
    hellos = [index for index, each in enumerate(drafter.requests) if each.HasField("hello")]
    return report, [each.feed.taps for each in drafter.requests[hellos[1] :] if each.HasField("feed")]


async def test_a_drafter_that_needs_less_than_is_retained_is_fed_what_it_needs():
    report, taps = await after_a_swap((MTP, DFLASH), (MTP,), "auto")
    assert report.counters.by_mode["mtp"].accepted > 10
    assert taps[0].shape[1:] == [1, 8]
    assert taps[0].WhichOneof("payload") == "inline", "whole positions lie in the ring"


async def test_a_drafter_that_needs_what_was_not_retained_waits_for_the_next_request():
    report, taps = await after_a_swap((MTP,), (DFLASH,), "auto")
    [*_, last] = report.counters.switches
    assert (last.origin, last.to, last.reason) == ("mtp", "none", "drafter_not_loaded")
    assert not taps


async def slow_reader():
    """A sequence leaves while the drafter reads its taps; another wants every page. Returns what the drafter read, and
    how often a stream began."""
    asked = [request([index, *PROMPT], 30, mode="mtp") for index in range(2)]
    drafter = RecordingDrafter(truth_of(asked), needs_final_hidden=True)
    drafter.go_on.clear()
    with ring_folder() as folder, recording(drafter, tap_folder=folder) as servicer:
        async with (
            system(
                servicer,
                bounds=Bounds(max_sequences=4, max_waiting=4, prefill_chunk=64, round_tokens=64),
                patience=replace(PATIENT, first_s=0.02, most_s=0.02),
                tap_pages=2,
                page_bytes=page(30),
                tap_folder=folder,
            ) as running,
            asyncio.timeout(60),
        ):
            streams = []
            begin = running.link._begin
            running.link._begin = lambda *args: (streams.append(args), begin(*args))
            first = asyncio.create_task(running.answer(asked[0]))
            assert await asyncio.to_thread(drafter.reading.wait, 30)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await running.settled()
            answering = asyncio.create_task(running.answer(asked[1]))
            while not drafter.go_on.is_set():
                if any(each.taps and each.taps.end for each in running.rounds.scheduler.running):
                    drafter.go_on.set()
                await asyncio.sleep(0)
            assert tokens(await answering) == plain_answer(asked[1])
            await running.settled()
    [context, *_] = drafter.contexts
    right = [bool((row == tap(context.ids[: at + 1], LAYERS)).all()) for at, row in enumerate(context.taps)]
    return right, len(streams)


async def test_a_slow_drafter_never_reads_an_overwritten_slot():
    right, new_streams = await slow_reader()
    assert right
    assert all(right)
    assert new_streams == 0


async def test_a_slot_that_is_used_again_too_early_is_noticed(monkeypatch):
    monkeypatch.setattr(Contexts, "_depart", lambda contexts, context, flight: None)  # nobody pins its page
    right, new_streams = await slow_reader()
    assert not all(right), "the fault is one"
    assert new_streams > 0, "the drafter ended the stream"
