"""What a forward accepts and gives back, beside its numbers."""

import threading

import pytest
import torch

from services.engine.batch import Block
from services.engine.engine import Engine
from services.errors import Overloaded
from tests.engine.tiny import feed, tokens, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write(folder)
    return folder


@pytest.fixture(scope="module")
def engine(folder):
    return Engine.load(folder, dtype=torch.float32, threads=1, cache_rows=10_000)


def test_rows_come_in_block_order_and_only_those_wanted(engine):
    ids, slots = tokens(12), [engine.open(12) for _ in range(3)]
    whole = [feed(engine, engine.open(12), part).logits_RV for part in (ids[:5], ids[5:9], ids[9:])]
    blocks = [
        Block(slot=slots[0], ids=ids[:5], wanted=1),
        Block(slot=slots[1], ids=ids[5:9], wanted=0),
        Block(slot=slots[2], ids=ids[9:], wanted=3),
    ]
    result = engine.forward(blocks, taps=[2, 0], hidden=True)
    assert torch.equal(result.logits_RV, torch.cat([whole[0][-1:], whole[2]]))
    assert list(result.taps) == [2, 0]
    assert result.taps[0].shape == result.hidden_TH.shape == (12, 64)


def test_nothing_wanted_gives_no_rows(engine):
    result = engine.forward([Block(slot=engine.open(4), ids=tokens(4), wanted=0)])
    assert result.logits_RV.shape == (0, engine.vocab_size)
    assert result.hidden_TH is None
    assert not result.taps


def test_a_forward_moves_no_frontier_and_the_next_one_drops_what_was_not_committed(engine):
    ids, slot = tokens(9), engine.open(9)
    feed(engine, slot, ids[:4])
    engine.forward([Block(slot=slot, ids=[1, 2, 3], wanted=3)])
    assert slot.length == 4
    kept = feed(engine, slot, ids[4:]).logits_RV
    assert slot.length == 9
    assert torch.equal(kept, feed(engine, engine.open(9), ids).logits_RV[4:])


def test_padded_rows_of_the_vocabulary_are_never_in_the_logits(folder, engine):
    small = Engine.load(folder, dtype=torch.float32, threads=1, cache_rows=64, vocab_size=90)
    ids = tokens(6, 90)
    logits_RV = feed(small, small.open(6), ids).logits_RV
    assert small.vocab_size == 90
    torch.testing.assert_close(logits_RV, feed(engine, engine.open(6), ids).logits_RV[:, :90])


def test_the_context_can_be_shortened(folder):
    assert Engine.load(folder, dtype=torch.float32, threads=1, cache_rows=64, context=33).context == 33


def test_a_slot_is_filled_to_its_last_row_and_no_further(engine):
    slot = engine.open(10)
    feed(engine, slot, tokens(8))
    feed(engine, slot, [1, 2])
    with pytest.raises(ValueError, match="do not fit"):
        engine.forward([Block(slot=slot, ids=[3], wanted=1)])


def test_the_last_position_of_the_context_can_be_used(engine):
    slot = engine.open(engine.context)
    feed(engine, slot, tokens(engine.context))
    assert slot.length == engine.context


def test_the_budget_is_whole_again_when_all_are_closed(engine):
    before = engine.free_rows
    slots = [engine.open(rows) for rows in (1, 700, 33)]
    assert engine.free_rows == before - 734
    with pytest.raises(Overloaded):
        engine.open(10_000)
    for slot in slots * 2:
        engine.close(slot)
    assert engine.free_rows == before


def test_a_short_sequence_after_a_long_one_starts_afresh(engine):
    ids = tokens(5)
    first = engine.open(300)
    feed(engine, first, tokens(300, seed=3))
    engine.close(first)
    expected = feed(engine, engine.open(5), ids).logits_RV
    assert torch.equal(feed(engine, engine.open(300), ids).logits_RV, expected)


@pytest.mark.parametrize(
    ("blocks", "taps"),
    [
        (lambda slot: [], []),
        (lambda slot: [Block(slot=slot, ids=[], wanted=0)], []),
        (lambda slot: [Block(slot=slot, ids=[1], wanted=2)], []),
        (lambda slot: [Block(slot=slot, ids=[1], wanted=-1)], []),
        (lambda slot: [Block(slot=slot, ids=[1], wanted=1)] * 2, []),
        (lambda slot: [Block(slot=slot, ids=[1], wanted=1)], [3]),
        (lambda slot: [Block(slot=slot, ids=[1], wanted=1)], [-1]),
    ],
    ids=["no blocks", "no rows", "too many wanted", "negative", "a slot twice", "tap past the end", "negative tap"],
)
def test_a_forward_that_makes_no_sense_is_refused(engine, blocks, taps):
    with pytest.raises(ValueError, match=r"blocks|wanted|fit|taps"):
        engine.forward(blocks(engine.open(8)), taps=taps)


def test_results_can_be_changed_by_who_asked(engine):
    feed(engine, engine.open(4), tokens(4)).logits_RV.add_(1)


def test_another_thread_computes_the_same(engine):
    ids, results = tokens(30), []
    torch.set_num_threads(2)
    thread = threading.Thread(target=lambda: results.append(feed(engine, engine.open(30), ids).logits_RV))
    thread.start()
    thread.join()
    assert torch.equal(results[0], feed(engine, engine.open(30), ids).logits_RV)
    assert torch.get_num_threads() == 1


def test_progress_is_told_by_stage(folder, tmp_path):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    told = []
    Engine.load(
        tmp_path,
        dtype=torch.bfloat16,
        threads=1,
        cache_rows=64,
        progress=lambda stage, done: told.append((stage, done)),
    )
    stages = [stage for stage, _ in told]
    assert stages == sorted(stages, key=["numerics", "weights", "check"].index)
    assert dict(told)["weights"] == dict(told)["numerics"] == 1
    assert told[-1] == ("check", 1)
