"""Sharing the retained taps with a drafter on this host."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tandem.v1.drafter_pb2 import TapRing

from services.target.taps.region import Region
from services.target.taps.ring_file import RingFile
from services.target.taps.taps import Taps
from services.target.worker import Worker

log = logging.getLogger(__name__)


class Sharing:
    """`folder` None: nothing is shared, and taps travel in messages."""

    def __init__(self, taps: Taps, worker: Worker, folder: Path | None) -> None:
        self._taps, self._worker, self._folder = taps, worker, folder

    @asynccontextmanager
    async def offer(self) -> AsyncIterator[TapRing | None]:
        """Move what is retained into a new file, which has a name while the body runs; None where there can be none.

        Every stream needs a file of its own, since the last one's has no name any more."""
        if self._folder is None:
            yield None
            return
        file = RingFile(self._folder)
        try:
            yield await self._offer(file)
        finally:
            file.discard()

    async def _offer(self, file: RingFile) -> TapRing | None:
        pages, page_bytes = self._taps.pages, self._taps.page_bytes
        try:
            memory = await asyncio.to_thread(file.create, pages * page_bytes)
        except OSError as error:
            log.warning("no tap ring in %s (%s); taps travel in messages", file.path.parent, error)
            return None
        await self._taps.move(Region(memory, page_bytes), self._worker)
        return TapRing(path=str(file.path), slots=pages, slot_bytes=page_bytes)
