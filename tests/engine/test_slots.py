"""A slot is a list of rows that is cut back from its end; slots share a budget and nothing else."""

import resource
from pathlib import Path

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

from services.engine.cache.slots import Layout, Slots
from services.errors import BadConfig, Overloaded

LAYOUT = Layout(layers=2, kv_heads=3, head_dim=4, dtype=torch.bfloat16, page=512)


def pool(rows: int = 100, lanes: int = 4, longest: int | None = None) -> Slots:
    return Slots(LAYOUT, rows=rows, lanes=lanes, longest=longest or rows)


class SlotAgainstList(RuleBasedStateMachine):
    """Rows begun and kept or dropped at random leave what a plain list would hold."""

    @initialize()
    def start(self):
        self.slot, self.rows, self.begun = pool().open(40), [], []

    @rule(count=st.integers(1, 40), value=st.integers(0, 200))
    def begin(self, count, value):
        if len(self.rows) + count > 40:
            with pytest.raises(ValueError, match="do not fit"):
                self.slot.begin(count)
        else:
            self.slot.begin(count)
            self.begun = [value + place for place in range(count)]
            for layer in range(LAYOUT.layers):
                rows_S2ND = self.slot.kv(layer)[self.slot.length : self.slot.length + count]
                rows_S2ND.copy_(torch.tensor(self.begun)[:, None, None])

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
            assert torch.equal(self.slot.kv(layer)[: len(self.rows), 5, 3], expected)
            assert torch.equal(self.slot.kv(layer)[: len(self.rows), 0, 0], expected)


def test_a_slot_holds_what_a_list_would():
    run_state_machine_as_test(SlotAgainstList)


@pytest.mark.parametrize("kept", [-1, 4])
def test_only_rows_that_were_begun_can_be_kept(kept):
    slot = pool().open(10)
    slot.begin(3)
    with pytest.raises(ValueError, match="cannot keep"):
        slot.commit(kept)


def test_rows_are_kept_once():
    slot = pool().open(10)
    slot.begin(3)
    slot.commit(2)
    with pytest.raises(ValueError, match="cannot keep"):
        slot.commit(1)


def test_a_budget_is_reserved_when_a_slot_opens_and_returned_when_it_closes():
    slots = pool()
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
    slots = pool()
    with pytest.raises(Overloaded):
        slots.open(101)
    assert slots.open(100).rows == 100


def test_a_closed_slot_cannot_be_used():
    slots = pool()
    slot = slots.open(10)
    slots.close(slot)
    with pytest.raises(ValueError, match="closed"):
        slot.begin(1)


def test_rows_nobody_wrote_are_zero_also_after_another_sequence_used_the_lane():
    slots = pool(1000)
    first, neighbour = slots.open(500), slots.open(500)
    for layer in range(LAYOUT.layers):
        first.kv(layer).fill_(float("nan"))
        neighbour.kv(layer).fill_(3)
    slots.close(first)
    again = slots.open(500)
    for layer in range(LAYOUT.layers):
        assert not again.kv(layer).any()
        assert (neighbour.kv(layer) == 3).all()


def test_lanes_are_taken_from_the_lowest_so_that_sequences_stay_side_by_side():
    slots = pool()
    first, second, third = (slots.open(10) for _ in range(3))
    slots.close(second)
    slots.close(first)
    assert [slots.open(10).lane for _ in range(3)] == [0, 1, 3]
    assert third.lane == 2


def test_there_are_no_more_slots_than_lanes():
    slots = pool(lanes=2)
    first, _ = slots.open(1), slots.open(1)
    with pytest.raises(Overloaded, match="every slot"):
        slots.open(1)
    slots.close(first)
    slots.open(1)


@pytest.mark.parametrize("rows", [0, -1, 513])
def test_a_slot_has_rows_and_fits_a_lane(rows):
    with pytest.raises(ValueError, match="rows"):
        pool(10_000, longest=512).open(rows)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_is_touched_only_as_it_is_used_and_returned_at_the_end():
    slots = pool(10**7, lanes=64)  # would be 61 GB
    before = resident_bytes()
    slot = slots.open(10**7)
    slot.kv(1)[: 10**6].fill_(1)
    assert 40 * 10**6 < resident_bytes() - before < 80 * 10**6
    slots.close(slot)
    assert resident_bytes() - before < 20 * 10**6


def test_address_space_that_cannot_be_had_is_a_setting_to_change():
    with pytest.raises(BadConfig, match="max_sequences"):
        pool(10**15)
