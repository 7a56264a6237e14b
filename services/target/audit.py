"""Decoding a finished sequence once more, plainly, and comparing. This is the law put to the test on a live request.

The replay is one more sequence of the same scheduler, so it shares rounds with whatever else runs. It reserves rows for
what was generated, not for what was allowed, it ends at the first difference, and it ends with its reader. What a
request costs is thereby at most doubled, and never more than one of the two waits or runs.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from services.engine.sampling import TokenLogprobs
from services.errors import TandemError
from services.target.cut import Finish
from services.target.report import Audit
from services.target.request import Request, Speculation
from services.target.rounds import Rounds
from services.target.sink import Update

log = logging.getLogger(__name__)


async def audited(rounds: Rounds, request: Request) -> AsyncGenerator[Update, None]:
    """What `rounds.generate` gives, with the verdict in the last report. A replay that fails costs the verdict only."""
    ids: list[int] = []
    last: Update | None = None
    async with aclosing(rounds.generate(request)) as updates:
        async for update in updates:
            ids += [kept.id for kept in update.kept]
            if update.finish is None:
                yield update
            else:
                last = update
    assert last is not None, "a generation ends with a finish or an error"
    assert last.finish is not None
    try:
        audit = await _audit(rounds, request, ids, last.finish)
    except TandemError as error:
        log.warning("request %s was not audited: %s", request.id, error)
        audit = None
    yield replace(last, report=replace(last.report, audit=audit))


async def _audit(rounds: Rounds, request: Request, ids: Sequence[int], finish: Finish) -> Audit:
    checked, end = 0, None
    async with aclosing(rounds.generate(_plain(request, len(ids)), again=True)) as updates:
        async for update in updates:
            for kept in update.kept:
                if kept.id != ids[checked]:
                    return Audit(checked + 1, differs_at=checked, margin=_margin(kept.logprobs))
                checked += 1
            end = update.finish
    # A replay that may not go further than the answer ends there for its length, unless a stop ends it.
    expected = finish if finish.kind in ("stop_token", "stop_string") else Finish("length")
    same = checked == len(ids) and end == expected
    return Audit(checked, differs_at=None if same else checked)


def _plain(request: Request, length: int) -> Request:
    """Logprobs read the row and change nothing of what is drawn from it."""
    logprobs = max(2, request.sampling.logprobs or 0)
    return replace(
        request,
        max_new=length,
        open_ended=False,
        sampling=replace(request.sampling, logprobs=logprobs),
        speculation=Speculation(mode="none"),
    )


def _margin(logprobs: TokenLogprobs | None) -> float | None:
    """None where the vocabulary has no second id."""
    if logprobs is None or len(logprobs.top) < 2:
        return None
    (_, first), (_, second), *_ = logprobs.top
    return first - second
