"""Finds how to call attention so that a row gets the same bits alone and in any block, over any padded keys.

Two kinds of data make the order of sums visible, as for linears: values that cancel, and scores that do.

Shape key: T rows of a block, P positions of a sequence, C query, key and value heads side by side, N key heads,
D head size, E half of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from services.engine.cache.slots import Layout, Slots
from services.engine.ops.attention import Attention, Heads
from services.engine.ops.plan import AttentionPlan
from services.engine.ops.tiles import Span

SEED = 21
POSITIONS = 1056
COUNTS = (1, 2, 3, 5, 8, 11, 16, 17, 22, 32, 33)
SIZE = 64  # fewer keys than a whole multiple are tried in steps of this
CANDIDATES = (
    AttentionPlan(queries=4),
    AttentionPlan(queries=8),
    AttentionPlan(queries=16),
    AttentionPlan(queries=32),
    AttentionPlan(queries=64),
    AttentionPlan(queries=32, keys=1024),
    AttentionPlan(queries=16, most=16),
    AttentionPlan(queries=32, most=32, keys=1024),
)


def attention_plan(heads: Heads, dtype: torch.dtype) -> AttentionPlan | None:
    """The first candidate under which nothing differs, with every smaller padding of keys that changes nothing."""
    trials = [Lanes(heads, make(heads, dtype)) for make in (cancelling_values, cancelling_scores)]

    def all_safe(plan: AttentionPlan) -> bool:
        return all(safe(plan, lanes) for lanes in trials)

    plan = next(filter(all_safe, CANDIDATES), None)
    if plan is None:
        return None
    common = set.intersection(*(sizes(plan, lanes) for lanes in trials))
    shorter = replace(plan, over=tuple(sorted(common)))
    return shorter if all_safe(shorter) else plan


class Lanes:
    """A pool whose lanes all hold the same sequence, to run blocks of it in."""

    def __init__(self, heads: Heads, qkv_PCD: Tensor) -> None:
        self.heads = heads
        self._qkv_PCD = qkv_PCD
        most, page = (max(each) for each in zip(*((plan.lanes, plan.keys) for plan in CANDIDATES), strict=True))
        layout = Layout(layers=1, kv_heads=heads.kv, head_dim=heads.dim, dtype=qkv_PCD.dtype, page=page)
        pool = Slots(layout, rows=most * POSITIONS, lanes=most, longest=POSITIONS)
        self._slots = [pool.open(POSITIONS) for _ in range(most)]
        for slot in self._slots:
            slot.kv(0)[:POSITIONS].copy_(qkv_PCD[:, heads.query :])

    def rows(self, plan: AttentionPlan, start: int, counts: Sequence[int]) -> Tensor:
        """Of a block in each lane, all from position `start` on."""
        spans, end = [], 0
        for slot, count in zip(self._slots, counts, strict=False):
            slot.length = start
            spans.append(Span(slot, end, end := end + count))
        attention = Attention(spans, end, self.heads, plan, self._qkv_PCD.dtype)
        return attention(0, torch.cat([self._qkv_PCD[start : start + count] for count in counts]))


def safe(plan: AttentionPlan, lanes: Lanes) -> bool:
    """Whether blocks of many lengths at many places, alone and beside others, give each row what it gets alone."""
    alone: dict[int, Tensor] = {}
    for start, counts in blocks(plan, lanes.heads):
        positions = range(start, start + max(counts))
        alone |= {position: lanes.rows(plan, position, [1]) for position in positions if position not in alone}
        expected = torch.cat([alone[position] for position in positions])
        if not torch.equal(lanes.rows(plan, start, counts), torch.cat([expected[:count] for count in counts])):
            return False
    return True


def sizes(plan: AttentionPlan, lanes: Lanes) -> set[int]:
    """To how many keys, fewer than `plan.keys`, the keys over a whole multiple can be padded without any difference.

    Kernels cut a sum by its length, so a longer one may be safe where a shorter one is not."""
    each = plan.most // lanes.heads.group
    whole = [lanes.rows(plan, start, [min(each, POSITIONS - start)]) for start in range(0, POSITIONS, each)]
    whole_PC = torch.cat(whole)

    def same(size: int) -> bool:
        tried = replace(plan, over=(size,))
        for start, counts in blocks_within(size, plan, lanes.heads):
            expected = torch.cat([whole_PC[start : start + count] for count in counts])
            if not torch.equal(lanes.rows(tried, start, counts), expected):
                return False
        return True

    return set(filter(same, range(SIZE, plan.keys, SIZE)))


def blocks_within(size: int, plan: AttentionPlan, heads: Heads) -> Iterator[tuple[int, Sequence[int]]]:
    """Blocks that see at most `size` keys, or as many after a first whole multiple, down from the last of them: long
    ones with every row, short ones with some."""
    for count in (plan.most // heads.group, 33, 8, 1):
        for first in (0, plan.keys):
            last = min(first + size, POSITIONS)
            for end in range(last, first, -max(count, 32)):
                start = max(end - count, first)
                yield start, [end - start]
            if count <= 8:
                yield last - count, [count] * plan.lanes


def blocks(plan: AttentionPlan, heads: Heads) -> Iterator[tuple[int, Sequence[int]]]:
    """Where a block starts, and its length in each lane: around the places where more keys are read, and elsewhere."""
    each = plan.most // heads.group  # rows that fit one call
    for count in (*range(1, 34), each, each + 1, 2 * each + 1):
        yield 512 - count // 2, [count]
    for count in COUNTS:
        yield 0, [count]
        yield 1024 - count // 2, [count]
        yield 512 - count // 2, [count, 1, count, -(-count // 2)]
    for count in (1, 11, each):
        yield 512 - count // 2, [count] * plan.lanes


def cancelling_values(heads: Heads, dtype: torch.dtype) -> Tensor:
    """Sixteen neighbours share a key, and the values of eight are those of the others negated."""
    generator = torch.Generator().manual_seed(SEED)
    qkv_PCD = torch.randn(POSITIONS, heads.query + 2 * heads.kv, heads.dim, generator=generator)
    _, k_PND, v_PND = torch.split(qkv_PCD, [heads.query, heads.kv, heads.kv], 1)
    for start in range(0, POSITIONS, 16):
        k_PND[start : start + 16] = k_PND[start]
        shuffled = torch.randperm(16, generator=generator) + start
        v_PND[shuffled[8:]] = -v_PND[shuffled[:8]]
    return qkv_PCD.to(dtype)


def cancelling_scores(heads: Heads, dtype: torch.dtype) -> Tensor:
    """Every product of a query and a key is zero but for rounding, which is large enough to move the weights."""
    generator = torch.Generator().manual_seed(SEED)
    qkv_PCD = torch.randn(POSITIONS, heads.query + 2 * heads.kv, heads.dim, generator=generator)
    q_PCD, k_PND, _ = torch.split(qkv_PCD, [heads.query, heads.kv, heads.kv], 1)
    half = heads.dim // 2
    shuffled = torch.randperm(heads.dim, generator=generator)
    for part, sign in ((q_PCD, 1), (k_PND, -1)):
        part *= 2.0**9 * torch.exp2(torch.randint(-4, 5, part.shape, generator=generator))
        part[..., half:] = sign * part[..., :half]
        part.copy_(part[..., shuffled])
    return qkv_PCD.to(dtype)
