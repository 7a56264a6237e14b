"""An audit finds what is broken at its place, and nothing in what is not."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from services.engine.batch import Forward
from services.errors import Overloaded
from services.target.audit import audited
from services.target.cut import Cutter, Finish
from services.target.request import Request
from services.target.sink import Update
from tests.target.harness import BOUNDS, System, plain_answer, request, system, tokens, truth_of
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import ScriptedModel, logits

pytestmark = pytest.mark.anyio

MIXED = [("right", 3), ("wrong", 5)] * 20


class DependsOnWidth(ScriptedModel):
    """The fault that drafting is most likely to bring: a row has other bits when others share its pass."""

    def __init__(self, *, position: int) -> None:
        super().__init__()
        self.position = position

    def forward(self, blocks, **kwargs) -> Forward:
        forward, row = super().forward(blocks, **kwargs), 0
        for block in blocks:
            start = block.slot.length + len(block.ids) - block.wanted
            if block.wanted > 1 and start <= self.position < start + block.wanted:
                at = row + self.position - start
                forward.logits_RV[at] = forward.logits_RV[at].roll(1)
            row += block.wanted
        return forward


class Reserved(ScriptedModel):
    """Remembers what was reserved."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def open(self, rows: int):
        self.rows.append(rows)
        return super().open(rows)


async def audit(running: System, asked: Request) -> list[Update]:
    asked = replace(asked, speculation=replace(asked.speculation, audit=True))
    return [update async for update in audited(running.rounds, asked)]


def drafting(*asked: Request, script=MIXED) -> ScriptedDrafter:
    return ScriptedDrafter(truth_of(asked), iter(script))


@pytest.mark.parametrize("mode", ["none", "ngram"])
async def test_a_lawful_answer_is_clean_and_every_token_of_it_was_compared(mode: str) -> None:
    asked = [request([i, 2, 3], 30, mode=mode, temperature=i / 2, seed=i, stop_ids=[9]) for i in range(4)]
    async with system(drafting(*asked)) as running:
        answers = await asyncio.gather(*(audit(running, each) for each in asked))
        await running.settled()
    for each, updates in zip(asked, answers, strict=True):
        assert tokens(updates) == plain_answer(each)
        assert [update.report.audit for update in updates[:-1]] == [None] * (len(updates) - 1)
        found = updates[-1].report.audit
        assert (found.checked, found.differs_at, found.margin) == (len(tokens(updates)), None, None)


async def test_a_stop_string_at_the_end_is_compared_too() -> None:
    asked = request([1, 2, 3], 40)
    text = "".join("abcdefghijklmnopqrstuvwxyz012345"[id] for id in plain_answer(asked))
    asked = request([1, 2, 3], 40, stop_strings=[text[11:13]])
    async with system(drafting(asked)) as running:
        updates = await audit(running, asked)
    assert updates[-1].finish.kind == "stop_string"
    assert updates[-1].report.audit.differs_at is None


@pytest.mark.parametrize("position", [5, 9, 16])
async def test_a_row_that_depends_on_its_company_is_found_at_its_place(position: int) -> None:
    asked = request([1, 2, 3], 24)
    plain = plain_answer(asked)
    async with system(drafting(asked, script=[("right", 7)] * 9), model=DependsOnWidth(position=position)) as running:
        updates = await audit(running, asked)
    place = position + 1 - len(asked.prompt)
    assert tokens(updates)[:place] == plain[:place]
    assert tokens(updates)[place] != plain[place]
    first, second = logits([*asked.prompt, *plain[:place]]).sort(descending=True).values[:2].tolist()
    found = updates[-1].report.audit
    assert (found.checked, found.differs_at) == (place + 1, place)
    assert found.margin == pytest.approx(first - second, abs=1e-5)


async def test_an_answer_that_ends_where_it_should_not_is_found_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cutter.cut

    def hasty(cutter: Cutter, some):
        count, finish = real(cutter, some)
        return count, Finish("stop_string", stop_string="zz", text_offset=0) if count > 1 else finish

    monkeypatch.setattr(Cutter, "cut", hasty)
    asked = request([1, 2, 3], 24)
    async with system(drafting(asked, script=[("right", 4)])) as running:
        updates = await audit(running, asked)
    count = len(tokens(updates))
    found = updates[-1].report.audit
    assert count < 24
    assert (found.checked, found.differs_at, found.margin) == (count, count, None)


async def test_a_replay_reserves_what_was_generated_not_what_was_allowed() -> None:
    asked = request([1, 2, 3], 200, stop_ids=[plain_answer(request([1, 2, 3], 20))[10]])
    model = Reserved()
    async with system(None, model=model) as running:
        updates = await audit(running, asked)
    count = len(tokens(updates))
    assert count <= 11
    assert model.rows == [asked.rows, len(asked.prompt) + count - 1]


async def test_a_replay_ends_with_its_reader() -> None:
    asked = request([1, 2, 3], 100, mode="none")
    model, replaying = ScriptedModel(), asyncio.Event()
    loop = asyncio.get_running_loop()
    model.on_forward = lambda: model.forwards > 110 and loop.call_soon_threadsafe(replaying.set)
    async with system(None, model=model) as running:

        async def read() -> None:
            async with aclosing(audited(running.rounds, asked)) as updates:
                async for _ in updates:
                    pass

        reading = asyncio.create_task(read())
        await replaying.wait()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await running.settled()
    assert model.forwards < 195


async def test_a_replay_that_fails_costs_the_verdict_not_the_answer() -> None:
    asked, model = request([1, 2, 3], 12, mode="none"), ScriptedModel()
    model.fail_at = 15
    async with system(None, model=model) as running:
        updates = await audit(running, asked)
        assert tokens(updates) == plain_answer(asked)
        assert updates[-1].finish is not None
        assert updates[-1].report.audit is None
        assert tokens(await running.answer(asked)) == plain_answer(asked)


async def test_a_full_queue_refuses_new_requests_never_the_replay_of_one_that_was_let_in() -> None:
    asked = request([1, 2], 20)
    async with system(None, bounds=replace(BOUNDS, max_waiting=0)) as running:
        with pytest.raises(Overloaded):
            await running.answer(asked)
        replay = [update async for update in running.rounds.generate(asked, again=True)]
    assert tokens(replay) == plain_answer(asked)
