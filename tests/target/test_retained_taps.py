"""Who is given pages, who gives them up, and when a page is free again."""

from types import SimpleNamespace

import pytest
import torch

from services.engine.batch import Forward
from services.target.link.contexts import Contexts
from services.target.taps.needs import Needs
from services.target.taps.region import Region
from services.target.taps.taps import Taps
from services.target.worker import Worker
from tests.target.harness import request

pytestmark = pytest.mark.anyio

HIDDEN, PER_PAGE = 4, 3
PAGE_BYTES = 64 + PER_PAGE * 2 * HIDDEN * 4
NEEDS = Needs((1,), hidden=True)


@pytest.fixture
def taps():
    return Taps(size=5 * PAGE_BYTES + 1, hidden_size=HIDDEN, dtype=torch.float32, page_bytes=PAGE_BYTES)


def forward(start, count):
    """Rows whose numbers are their positions: layer 1 as they are, the final hidden state negated."""
    rows = torch.arange(start, start + count, dtype=torch.float32)[:, None].expand(count, HIDDEN)
    return Forward(logits_RV=rows, taps={1: rows}, hidden_TH=-rows)


def extend(taps, retained, count):
    taps.reserve(retained, count)
    taps.write(retained, forward(retained.end, count), 0, count)


def positions(taps, retained):
    """What is retained, read page by page."""
    found, at = [], retained.base
    while at < retained.end:
        end = min(retained.border(at), retained.end)
        page_NKH = taps.read(retained, at, end)
        assert torch.equal(page_NKH[:, 0], -page_NKH[:, 1])
        found += page_NKH[:, 0, 0].tolist()
        at = end
    return found


def sequence(retained, frontier):
    slot = SimpleNamespace(length=frontier)
    return SimpleNamespace(
        id=1, request=request([1, 2], 50, mode="mtp"), ids=[1] * 60, taps=retained, slot=slot, frontier=frontier
    )


@pytest.mark.parametrize("steps", [[1] * 7, [PER_PAGE - 1, 1, 4], [PER_PAGE, 5], [PER_PAGE + 1, PER_PAGE], [15]])
def test_rows_are_retained_in_order_whatever_the_steps(taps, steps):
    retained = taps.retain(NEEDS)
    for count in steps:
        extend(taps, retained, count)
    assert positions(taps, retained) == list(range(sum(steps)))
    assert taps.retained_bytes == -(-sum(steps) // PER_PAGE) * PAGE_BYTES


def test_only_kept_rows_of_a_block_are_retained(taps):
    retained = taps.retain(NEEDS)
    for _ in range(3):
        taps.reserve(retained, 4)
        taps.write(retained, forward(retained.end - 5, 9), 5, 2)
    assert positions(taps, retained) == list(range(6))


def test_who_has_most_confirmed_pages_gives_them_up_and_goes_on(taps):
    small, large = taps.retain(NEEDS), taps.retain(NEEDS)
    extend(taps, small, 5)
    extend(taps, large, 9)
    small.confirmed, large.confirmed = 5, 8
    extend(taps, small, 5)
    assert (small.base, large.base) == (0, 6)
    assert positions(taps, small) == list(range(10))
    assert positions(taps, large) == [6, 7, 8]


def test_without_confirmed_pages_the_taps_of_who_writes_end(taps):
    first, second = taps.retain(NEEDS), taps.retain(NEEDS)
    extend(taps, first, 12)
    extend(taps, second, 4)
    assert second.ended
    assert not first.ended
    assert positions(taps, first) == list(range(12))
    assert taps.retained_bytes == 4 * PAGE_BYTES
    extend(taps, second, 1)  # nothing happens


def test_a_stream_that_ends_ends_the_taps_of_who_gave_up_pages_and_of_nobody_else(taps):
    gave, kept = taps.retain(NEEDS), taps.retain(NEEDS)
    extend(taps, gave, 9)
    gave.confirmed = 9
    extend(taps, kept, 7)
    assert gave.base == 9
    taps.drop(taps.retain(NEEDS))
    taps.stream_ended()
    assert gave.ended
    assert not kept.ended
    assert kept.confirmed == 0


def test_a_page_that_was_sent_is_free_only_when_nobody_reads_it(taps):
    contexts, retained = Contexts(taps, ring=True), taps.retain(NEEDS)
    extend(taps, retained, 5)
    fed = sequence(retained, 5)
    list(contexts.open(fed, ("mtp",), NEEDS))
    assert [(feed.start, len(feed.ids)) for feed in contexts.feeds(fed)] == [(0, 3), (3, 2)]
    contexts.confirm(1, 1, 3)
    list(contexts.open(fed, ("ngram",), Needs()))
    taps.drop(retained)
    assert taps.retained_bytes == PAGE_BYTES, "the second page is on its way"
    contexts.confirm(1, 1, 5)
    contexts.released(1, 2)
    assert taps.retained_bytes == PAGE_BYTES, "neither says anything of the first epoch's feeds"
    contexts.released(1, 1)
    assert taps.retained_bytes == 0


def test_a_stream_that_ends_frees_what_was_on_its_way(taps):
    contexts, retained = Contexts(taps, ring=True), taps.retain(NEEDS)
    extend(taps, retained, 5)
    fed = sequence(retained, 5)
    list(contexts.open(fed, ("mtp",), NEEDS))
    list(contexts.feeds(fed))
    list(contexts.close(1))
    taps.drop(retained)
    contexts.end()
    assert taps.retained_bytes == 0


@pytest.mark.parametrize(("fed_again_from", "ended"), [(0, True), (2, True), (3, False)])
def test_a_drafter_that_lost_what_was_given_up_cannot_be_fed_again(taps, fed_again_from, ended):
    contexts, retained = Contexts(taps, ring=True), taps.retain(NEEDS)
    extend(taps, retained, 5)
    fed = sequence(retained, 5)
    list(contexts.open(fed, ("mtp",), NEEDS))
    list(contexts.feeds(fed))
    contexts.confirm(1, 1, 5)
    extend(taps, taps.retain(NEEDS), 12)  # takes the confirmed page, and leaves room for nobody
    assert retained.base == 3
    contexts.behind(1, 1, fed_again_from)
    assert retained.ended is ended
    assert contexts.starved(1) is ended


def test_messages_on_their_way_are_bounded_and_go_on_when_they_are_acknowledged(taps, monkeypatch):
    monkeypatch.setattr("services.target.link.contexts.INLINE_BYTES", 2 * PER_PAGE * 2 * HIDDEN * 4)
    contexts, retained = Contexts(taps, ring=False), taps.retain(NEEDS)
    extend(taps, retained, 11)
    fed = sequence(retained, 11)
    list(contexts.open(fed, ("mtp",), NEEDS))
    assert [feed.start for feed in contexts.feeds(fed)] == [0, 3]
    assert contexts.gap(fed) == 5
    contexts.confirm(1, 1, 3)
    assert [feed.start for feed in contexts.feeds(fed)] == [6]
    contexts.confirm(1, 1, 9)
    assert [feed.start for feed in contexts.feeds(fed)] == [9]


async def test_what_is_retained_moves_to_another_region_and_is_written_on_there(taps):
    worker, retained = Worker(), taps.retain(NEEDS)
    extend(taps, retained, 4)
    region = Region.private(5, PAGE_BYTES)
    await taps.move(region, worker)
    worker.close()
    extend(taps, retained, 4)
    assert positions(taps, retained) == list(range(8))
    page, skip = retained.place(7)
    assert region.taps(page.index, (1, 2, HIDDEN), torch.float32, skip=skip)[0, 0, 0] == 7


def test_needs_have_one_order():
    other = Needs((0, 1, 4), hidden=True)
    assert NEEDS | Needs((4, 0)) == other
    assert other.covers(NEEDS)
    assert not NEEDS.covers(other)
    assert other.places(NEEDS) == (1, 3)
    assert (len(Needs()), len(other)) == (0, 4)
