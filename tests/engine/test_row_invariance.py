"""A row's bits depend on its own sequence alone: not on block length, chunking, drafts, neighbours, or how many keys.

Everything is compared bit for bit with a sequence that ran alone, one token at a time.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.engine.batch import Block
from services.engine.cache.slots import Slot
from services.engine.engine import Engine
from tests.engine.tiny import feed, tokens, write

ROWS = 580
SIZES = {
    "plain": {},
    "widths without whole vectors": {"hidden_size": 56, "intermediate_size": 101, "vocab_size": 77},
    "sums long enough to be cut": {
        "hidden_size": 72,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "num_hidden_layers": 2,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "heads that are normalised": {"family": "qwen3"},
    "long sums and heads that are normalised": {
        "family": "qwen3",
        "hidden_size": 72,
        "head_dim": 128,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "num_hidden_layers": 2,
        "attention_bias": True,
    },
}


@dataclass(repr=False)
class Alone:
    """The rows of one sequence that had no company."""

    engine: Engine
    ids: list[int]
    slot: Slot
    logits_PV: torch.Tensor
    hidden_PH: torch.Tensor
    tap_PH: torch.Tensor

    @classmethod
    def run(cls, engine: Engine, seed: int) -> "Alone":
        ids, slot = tokens(ROWS, engine.vocab_size, seed), engine.open(ROWS)
        rows = [feed(engine, slot, [id], taps=[1], hidden=True) for id in ids]
        return cls(
            engine,
            ids,
            slot,
            torch.cat([row.logits_RV for row in rows]),
            torch.cat([row.hidden_TH for row in rows]),
            torch.cat([row.taps[1] for row in rows]),
        )

    def cut(self, length: int) -> Slot:
        """A new slot that holds the first `length` rows."""
        slot = self.engine.open(ROWS)
        for layer in range(self.engine.layers):
            slot.kv(layer)[:length].copy_(self.slot.kv(layer)[:length])
        slot.length = length
        return slot

    def same_cache(self, slot: Slot) -> bool:
        rows = slice(0, slot.length)
        return all(torch.equal(slot.kv(layer)[rows], self.slot.kv(layer)[rows]) for layer in range(self.engine.layers))


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module", params=SIZES.values(), ids=SIZES)
def engine(request, dtype, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write(folder, **request.param)
    engine = Engine.load(folder, dtype=dtype, threads=1, cache_rows=10**6)
    assert engine.numerics.exact
    return engine


@pytest.fixture(scope="module")
def alone(engine):
    return [Alone.run(engine, seed) for seed in range(2)]


def borders(engine: Engine) -> list[int]:
    """Block lengths one below, at and above every size at which something is padded or cut."""
    heads, attention = engine.numerics.table, engine.numerics.table.attention
    group = 3 if engine.hidden_size == 72 else 2
    sizes = {plan.most for plan in heads.rows.values()} | {attention.most // group, attention.queries // group}
    sizes |= {plan.multiple for plan in heads.rows.values()} | {2 * attention.most // group, 32, 64}
    return sorted({size + by for size in sizes for by in (-1, 0, 1) if size + by > 0} | set(range(1, 18)))


@pytest.mark.parametrize("keys", [0, 64, 129, 192, 200, 256, 385, 511, 512, 513, 576])
def test_a_block_of_any_length_equals_single_rows(alone, keys):
    """Blocks that begin with the cache empty, and that end before, at and after the padding of keys."""
    sequence = alone[0]
    for length in borders(sequence.engine):
        start = max(keys - length, 0)
        rows = slice(start, start + length)
        slot = sequence.cut(start)
        result = feed(sequence.engine, slot, sequence.ids[rows], taps=[1], hidden=True)
        assert torch.equal(result.logits_RV, sequence.logits_PV[rows]), length
        assert torch.equal(result.hidden_TH, sequence.hidden_PH[rows]), length
        assert torch.equal(result.taps[1], sequence.tap_PH[rows]), length
        assert sequence.same_cache(slot), length
        sequence.engine.close(slot)


@pytest.mark.parametrize("chunk", [16, 37, 64, ROWS])
def test_a_prefill_in_chunks_of_any_size_leaves_the_same_cache(alone, chunk):
    sequence = alone[0]
    slot = sequence.engine.open(ROWS)
    for start in range(0, ROWS, chunk):
        ids = sequence.ids[start : start + chunk]
        sequence.engine.forward([Block(slot=slot, ids=ids, wanted=0)])
        slot.commit(len(ids))
    assert sequence.same_cache(slot)
    sequence.engine.close(slot)


rounds = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15), st.booleans()), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(
    starts=st.tuples(*[st.sampled_from([1, 3, 60, 480, 500, 511, 512, 513])] * 2),
    plays=st.tuples(rounds, rounds),
    crowd=st.integers(0, 9),
)
def test_drafts_right_and_wrong_beside_others_change_nothing(alone, starts, plays, crowd):
    """Two sequences run rounds of their own: some tokens that will be kept, then some that will be dropped, or a plain
    step. A crowd that never commits runs beside them."""
    engine = alone[0].engine
    slots = [sequence.cut(start) for sequence, start in zip(alone, starts, strict=True)]
    others = [engine.open(40) for _ in range(crowd)]
    for turn in range(max(map(len, plays))):
        blocks, expected, kept = [], [], []
        for sequence, slot, play in zip(alone, slots, plays, strict=True):
            if turn < len(play):
                right, wrong, plain = play[turn]
                right = 1 if plain else 1 + right
                ids = sequence.ids[slot.length : slot.length + right] + [7] * (0 if plain else wrong)
                blocks.append(Block(slot=slot, ids=ids, wanted=len(ids)))
                expected.append(sequence.logits_PV[slot.length : slot.length + right])
                kept.append(right)
        blocks += [Block(slot=slot, ids=[turn] * (place + 1), wanted=1) for place, slot in enumerate(others)]
        rows = engine.forward(blocks).logits_RV.split([block.wanted for block in blocks])
        for block, rows_RV, expected_RV, count in zip(blocks, rows, expected, kept, strict=False):
            assert torch.equal(rows_RV[:count], expected_RV)
            block.slot.commit(count)
    assert all(sequence.same_cache(slot) for sequence, slot in zip(alone, slots, strict=True))
    for slot in [*slots, *others]:
        engine.close(slot)
