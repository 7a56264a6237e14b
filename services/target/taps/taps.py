"""Taps of running sequences, retained within a bound, so that a drafter can be fed, and fed again after a restart.

What the model's thread writes here is what a drafter on this host reads: feeds name pages that exist already. Pages are
given and taken on the event loop, between steps; the model's thread writes only into pages that a step was given.

Shape key: T rows of a forward, N positions, K taps of a position, H hidden size.
"""

import logging
from functools import partial

import torch
from torch import Tensor

from services.engine.batch import Forward
from services.target.taps.needs import Needs
from services.target.taps.region import PAGE_BYTES, Region
from services.target.taps.retained import Page, Retained
from services.target.worker import Worker
from services.wire.ring import HEADER_BYTES

log = logging.getLogger(__name__)


class Taps:
    """`size` is the bound in bytes. `hidden_size` and `dtype` are the model's."""

    def __init__(self, *, size: int, hidden_size: int, dtype: torch.dtype, page_bytes: int = PAGE_BYTES) -> None:
        self.pages, self.page_bytes = size // page_bytes, page_bytes
        self.dtype = dtype
        self._hidden_size = hidden_size
        self._region = Region.private(self.pages, page_bytes)
        self._pages = [Page(index) for index in range(self.pages)]
        self._free = self._pages[::-1]
        self._retained: dict[Retained, None] = {}  # in order of age

    @property
    def retained_bytes(self) -> int:
        return (self.pages - len(self._free)) * self.page_bytes

    # On the event loop.

    def retain(self, needs: Needs) -> Retained:
        """Begin to retain the taps of a sequence."""
        payload = self.page_bytes - HEADER_BYTES
        per_page = payload // self._row_bytes(needs)
        retained = Retained(needs, per_page, ended=not per_page)
        if retained.ended:
            log.warning("the taps of one position take more than %d bytes; they cannot be retained", payload)
        else:
            self._retained[retained] = None
        return retained

    def reserve(self, retained: Retained, positions: int) -> None:
        """Make room for so many more positions. Where there is none, the taps of the sequence end."""
        while not retained.ended and retained.room < positions:
            if not self._free:
                self._reclaim()
            if not self._free:
                log.info("no room for more taps: a sequence goes on without the drafters that need its taps")
                self.drop(retained)
                return
            page = self._free.pop()
            page.generation += 1
            page.owned = True
            retained.pages.append(page)

    def drop(self, retained: Retained) -> None:
        """Retain nothing more of a sequence, and free its pages. A second time changes nothing."""
        self._retained.pop(retained, None)
        retained.ended = True
        # A step may be writing into the old list's pages; nobody is given them before it is over.
        pages, retained.pages = retained.pages, []
        for page in pages:
            self._disown(page)

    def stream_ended(self) -> None:
        """No drafter holds anything any more: who gave up pages cannot be fed again from position 0."""
        for retained in list(self._retained):
            retained.confirmed = 0
            if retained.base:
                self.drop(retained)

    def unpin(self, page: Page) -> None:
        """A feed that named the page is not read any more."""
        page.pins -= 1
        if not page.pins and not page.owned:
            self._free.append(page)

    def _reclaim(self) -> None:
        """Whoever holds most confirmed pages gives them up: a drafter has that part, unless it restarts."""
        by_size = sorted(self._retained, key=lambda each: each.confirmed_pages, reverse=True)
        for retained in by_size:
            count = retained.confirmed_pages
            if self._free or count <= 0:
                return
            retained.base += count * retained.per_page
            given, retained.pages = retained.pages[:count], retained.pages[count:]
            for page in given:
                self._disown(page)

    def _disown(self, page: Page) -> None:
        page.owned = False
        if not page.pins:
            self._free.append(page)

    async def move(self, region: Region, worker: Worker) -> None:
        """Retain in another region from the next step on."""
        pages = [page.index for page in self._pages if page.owned]
        await worker.run(partial(self._move, region, pages))

    def read(self, retained: Retained, start: int, end: int) -> Tensor:
        """[N, K, H] of positions [start, end), which lie in one page; no copy."""
        page, skip = retained.place(start)
        return self._taps(retained, page, end - start, skip)

    def offset(self, retained: Retained, skip: int) -> int:
        """Bytes from the start of a page to its position `skip`."""
        return HEADER_BYTES + skip * self._row_bytes(retained.needs)

    # On the model's thread.

    def write(self, retained: Retained, forward: Forward, first: int, count: int) -> None:
        """Retain rows [first, first + count) of a forward: the next `count` positions."""
        pages = retained.pages  # before `ended`: the event loop may drop them at any time, in the other order
        if retained.ended:
            return
        rows_TH, done = retained.needs.rows(forward), 0
        while done < count:
            index, skip = divmod(retained.end - retained.base, retained.per_page)
            page = pages[index]
            taken = min(count - done, retained.per_page - skip)
            if not skip:
                self._region.stamp(page.index, page.generation)
            begin = first + done
            taps_NKH = self._taps(retained, page, taken, skip)
            torch.stack([each_TH[begin : begin + taken] for each_TH in rows_TH], dim=1, out=taps_NKH)
            retained.end += taken
            done += taken

    def _move(self, region: Region, pages: list[int]) -> None:
        region.copy(self._region, pages)
        self._region = region

    def _taps(self, retained: Retained, page: Page, count: int, skip: int) -> Tensor:
        shape = (count, len(retained.needs), self._hidden_size)
        return self._region.taps(page.index, shape, self.dtype, skip=skip)

    def _row_bytes(self, needs: Needs) -> int:
        return len(needs) * self._hidden_size * self.dtype.itemsize
