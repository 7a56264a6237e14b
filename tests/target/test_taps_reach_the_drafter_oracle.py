"""Taps as transformers computes them, and what a drafter is given by the real engine, round loop, link and wire."""

import pytest
import torch

from services.engine.engine import Engine
from services.target.scheduler import Bounds
from tests.engine.tiny import greedy, tokens, write
from tests.target import harness
from tests.target.harness import request, ring_folder, system
from tests.target.recording_drafter import RecordingDrafter, recording

pytestmark = pytest.mark.anyio

PER_PAGE = 24
LAYERS, TAPS, HIDDEN = (0, 1), 3, 64
PAGE_BYTES = 64 + PER_PAGE * TAPS * HIDDEN * 4 + 8  # some bytes at its end belong to no position
PROMPT = tokens(60)
LENGTH = 40


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    oracle = write(folder)
    engine = Engine.load(folder, dtype=torch.float32, cache_rows=1024)
    engine.cache_rows = engine.free_rows
    return engine, oracle


@pytest.fixture(scope="module")
def answer(pair):
    return greedy(pair[0], PROMPT, LENGTH)


def oracle_taps(oracle, ids):
    """[N, K, H] of every position: layers 0 and 1, and the state after the final norm."""
    with torch.no_grad():
        states = oracle(torch.tensor([ids]), output_hidden_states=True).hidden_states
    return torch.stack([states[1][0], states[2][0], states[-1][0]], dim=1)


async def run(engine, drafter, *, chunk=32, ring=True, tap_pages=64):
    bounds = Bounds(max_sequences=4, max_waiting=4, prefill_chunk=chunk, round_tokens=64)
    with ring_folder() as folder, recording(drafter, tap_folder=folder) as servicer:
        async with system(
            servicer,
            model=engine,
            bounds=bounds,
            page_bytes=PAGE_BYTES,
            tap_pages=tap_pages,
            tap_folder=folder if ring else None,
        ) as running:
            updates = await running.answer(request(PROMPT, LENGTH, mode=drafter.description.mode))
            await running.settled()
    return updates


def drafter_of(answer):
    full = PROMPT + answer
    return RecordingDrafter(lambda ids: full[len(ids) :], mode="dflash", tap_layers=LAYERS, needs_final_hidden=True)


@pytest.mark.parametrize("ring", [True, False], ids=["ring", "inline"])
@pytest.mark.parametrize("chunk", [1, PER_PAGE - 1, PER_PAGE, PER_PAGE + 1, 64])
async def test_every_position_has_the_taps_of_the_oracle(pair, answer, chunk, ring):
    engine, oracle = pair
    drafter = drafter_of(answer)
    updates = await run(engine, drafter, chunk=chunk, ring=ring)
    assert harness.tokens(updates) == answer
    counters = updates[-1].report.counters
    assert counters.by_origin["accepted"] > 10
    assert counters.by_origin["correction"] > 2
    [context] = drafter.contexts
    assert context.ids == (PROMPT + answer)[: len(context.ids)]
    assert len(context.taps) == context.fed > len(PROMPT) + 20
    torch.testing.assert_close(torch.stack(context.taps), oracle_taps(oracle, context.ids[:-1]), rtol=1e-4, atol=1e-4)
    assert set(context.leased) == {ring}


@pytest.mark.parametrize("ring", [True, False], ids=["ring", "inline"])
async def test_a_drafter_that_restarts_is_fed_the_same_taps_again(pair, answer, ring):
    engine, oracle = pair
    drafter = drafter_of(answer)
    drafter.die_in = 4
    updates = await run(engine, drafter, ring=ring)
    assert harness.tokens(updates) == answer
    before, after = drafter.contexts
    assert len(PROMPT) < before.fed < after.fed
    assert len(after.taps) == after.fed
    assert all(map(torch.equal, before.taps, after.taps))
    torch.testing.assert_close(torch.stack(after.taps), oracle_taps(oracle, after.ids[:-1]), rtol=1e-4, atol=1e-4)
    assert set(after.leased) == {ring}


async def test_taps_that_no_drafter_needs_are_not_asked_of_the_model(pair, answer, monkeypatch):
    engine, _ = pair
    asked = []
    forward = Engine.forward

    def noting(self, blocks, *, taps=(), hidden=False):
        asked.append((tuple(taps), hidden))
        return forward(self, blocks, taps=taps, hidden=hidden)

    monkeypatch.setattr(Engine, "forward", noting)
    await run(engine, RecordingDrafter(mode="ngram"))
    assert set(asked) == {((), False)}
    asked.clear()
    await run(engine, drafter_of(answer))
    assert set(asked) == {(LAYERS, True)}
