"""Two targets at one real drafter process that holds fewer contexts than both would open."""

import asyncio

import pytest

from services.drafter.drafting import Drafting
from services.drafter.ngram import NgramDrafter
from services.drafter.servicer import DrafterServicer
from tests.target.harness import plain_answer, request, system, tokens

pytestmark = pytest.mark.anyio

CONTEXTS, EACH = 4, 6


class Servicer(DrafterServicer):
    late = asyncio.Event()


async def test_both_keep_their_streams_and_every_answer_is_the_plain_one(caplog) -> None:
    asked = [request([index, *range(8)] * 3, 40) for index in range(EACH)]
    drafter = NgramDrafter(shortest=1, longest=4, default_draft_tokens=4)
    with Drafting.of([drafter], max_contexts=CONTEXTS) as drafting:
        async with system(Servicer(drafting)) as one, system(Servicer(drafting)) as other:
            for _ in range(2):
                answers = await asyncio.gather(*(each.answer(ask) for each in (one, other) for ask in asked))
                assert [tokens(updates) for updates in answers] == [plain_answer(ask) for ask in asked] * 2
            for each in (one, other):
                await each.settled()
                assert each.link.skipped["no_context"] > 0, "the drafter was full at times"
                assert each.link.open_contexts == 0
            assert one.link.turns + other.link.turns > 0
            assert "is away" not in caplog.text, "no stream was ended"
    assert drafting.capacity.taken == 0
