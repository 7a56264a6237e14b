"""Row invariance on the embedded model: drafts, chunks and neighbours leave every row's bits alone."""

import pytest
import torch

from services.engine.batch import Block
from services.engine.engine import Engine
from tests.engine.tiny import feed, tokens


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def engine(request, embedded_model):
    return Engine.load(embedded_model, dtype=request.param, cache_rows=10_000)


def rounds_equal_single_rows(engine, prompt, lengths):
    """Blocks of these lengths, each with a wrong draft behind it and others beside it, against one row at a time."""
    ids, count = tokens(prompt + sum(lengths), engine.vocab_size), prompt + sum(lengths)
    alone, blocks, other = engine.open(count), engine.open(count + 3), engine.open(count)
    feed(engine, alone, ids[:prompt])
    for start in range(0, prompt, 37):
        feed(engine, blocks, ids[start : min(start + 37, prompt)])
    for length in lengths:
        mine = ids[blocks.length : blocks.length + length]
        expected = [feed(engine, alone, [id], hidden=True) for id in mine]
        result = engine.forward(
            [
                Block(slot=other, ids=ids[other.length : other.length + 5], wanted=0),
                Block(slot=blocks, ids=[*mine, 5, 6, 7], wanted=length + 3),
            ],
            hidden=True,
        )
        other.commit(3)
        blocks.commit(length)
        assert torch.equal(result.logits_RV[:length], torch.cat([row.logits_RV for row in expected]))
        assert torch.equal(result.hidden_TH[5 : 5 + length], torch.cat([row.hidden_TH for row in expected]))
    for layer in range(engine.layers):
        assert torch.equal(blocks.kv(layer)[:count], alone.kv(layer)[:count])
    for slot in (alone, blocks, other):
        engine.close(slot)


def test_this_machine_has_a_safe_plan(engine):
    assert engine.numerics.exact, engine.numerics.reason


def test_a_few_rounds_equal_single_rows(engine):
    rounds_equal_single_rows(engine, 490, [1, 5, 16, 8, 2])


@pytest.mark.full
def test_rounds_of_every_length_equal_single_rows(engine):
    rounds_equal_single_rows(engine, 400, range(1, 17))
    rounds_equal_single_rows(engine, 1010, [3, 9, 4, 1, 15])
