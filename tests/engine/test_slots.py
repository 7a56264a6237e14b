"""A slot is a list of rows that is cut back from its end; slots share a budget and nothing else."""

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.engine.cache.slots import Layout, Slot, Slots
from services.errors import Overloaded

LAYOUT = Layout(layers=2, kv_heads=3, head_dim=4, dtype=torch.bfloat16, page=512)


class SlotAgainstList(RuleBasedStateMachine):
    """Rows begun and kept or dropped at random leave what a plain list would hold."""

    @initialize()
    def start(self):
        self.slot, self.rows, self.begun = Slot(40, LAYOUT), [], []

    @rule(count=st.integers(1, 40), value=st.integers(0, 200))
    def begin(self, count, value):
        if len(self.rows) + count > 40:
            with pytest.raises(ValueError, match="do not fit"):
                self.slot.begin(count)
        else:
            self.slot.begin(count)
            self.begun = [value + place for place in range(count)]
            for kv_S2ND in self.slot.kv:
                kv_S2ND[self.slot.length : self.slot.length + count] = torch.tensor(self.begun)[:, None, None]

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def commit(self, data):
        kept = data.draw(st.integers(0, len(self.begun)))
        self.slot.commit(kept)
        self.rows += self.begun[:kept]
        self.begun = []

    @invariant()
    def slot_equals_list(self):
        assert self.slot.length == len(self.rows)
        expected = torch.tensor(self.rows).to(LAYOUT.dtype)
        for layer in range(LAYOUT.layers):
            assert torch.equal(self.slot.kv[layer][: len(self.rows), 5, 3], expected)
            assert torch.equal(self.slot.v[layer][0, 2, : len(self.rows), 3], expected)
            assert torch.equal(self.slot.k[layer][0, 0, : len(self.rows), 0], expected)


def test_a_slot_holds_what_a_list_would():
    run_state_machine_as_test(SlotAgainstList)


@pytest.mark.parametrize("kept", [-1, 4])
def test_only_rows_that_were_begun_can_be_kept(kept):
    slot = Slot(10, LAYOUT)
    slot.begin(3)
    with pytest.raises(ValueError, match="cannot keep"):
        slot.commit(kept)


def test_rows_are_kept_once():
    slot = Slot(10, LAYOUT)
    slot.begin(3)
    slot.commit(2)
    with pytest.raises(ValueError, match="cannot keep"):
        slot.commit(1)


def test_a_budget_is_reserved_when_a_slot_opens_and_returned_when_it_closes():
    slots = Slots(100, LAYOUT)
    first, second = slots.open(60), slots.open(40)
    assert slots.free_rows == 0
    with pytest.raises(Overloaded):
        slots.open(1)
    slots.close(first)
    slots.close(first)
    assert slots.free_rows == 60
    slots.close(second)
    assert slots.free_rows == 100


def test_a_refused_slot_takes_nothing():
    slots = Slots(100, LAYOUT)
    with pytest.raises(Overloaded):
        slots.open(101)
    assert slots.open(100).rows == 100


def test_a_closed_slot_cannot_be_used():
    slots = Slots(100, LAYOUT)
    slot = slots.open(10)
    slots.close(slot)
    with pytest.raises(ValueError, match="closed"):
        slot.begin(1)


def test_rows_nobody_wrote_are_zero_also_after_another_sequence_used_the_memory():
    slots = Slots(1000, LAYOUT)
    first = slots.open(1000)
    for kv_S2ND in first.kv:
        kv_S2ND.fill_(float("nan"))
    slots.close(first)
    assert all(not kv_S2ND.any() for kv_S2ND in slots.open(1000).kv)


def test_memory_is_touched_only_as_it_is_used():
    slot = Slot(10**8, LAYOUT)  # would be 4.8 GB
    slot.begin(1)
    slot.kv[0][0].fill_(1)
    assert slot.kv[1].shape[0] >= 10**8
