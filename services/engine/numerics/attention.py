"""Finds how to call attention so that a row gets the same bits alone and in any block, over any padded keys.

Two kinds of data make the order of sums visible, as for linears: values that cancel, and scores that do.

Shape key: T rows of a block, P positions of a sequence, C query, key and value heads side by side, N key heads,
D head size, E half of it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from services.engine.cache.slots import Layout, Slots
from services.engine.ops.attention import Attention, Heads
from services.engine.ops.plan import AttentionPlan
from services.engine.ops.tiles import Span

SEED = 21
POSITIONS = 1056
COUNTS = (1, 2, 3, 5, 8, 11, 16, 17, 22, 32, 33)
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
    """The first candidate under which nothing differs."""
    sequences = [cancelling_values(heads, dtype), cancelling_scores(heads, dtype)]
    return next((plan for plan in CANDIDATES if all(safe(plan, heads, qkv_PCD) for qkv_PCD in sequences)), None)


def safe(plan: AttentionPlan, heads: Heads, qkv_PCD: Tensor) -> bool:
    """Whether blocks of many lengths at many places, alone and beside others, give each row what it gets alone."""
    layout = Layout(layers=1, kv_heads=heads.kv, head_dim=heads.dim, dtype=qkv_PCD.dtype, page=plan.keys)
    pool = Slots(layout, rows=plan.lanes * POSITIONS, lanes=plan.lanes, longest=POSITIONS)
    slots = [pool.open(POSITIONS) for _ in range(plan.lanes)]
    for slot in slots:
        slot.kv(0)[:POSITIONS].copy_(qkv_PCD[:, heads.query :])

    def rows(start: int, counts: Sequence[int]) -> Tensor:
        spans, end = [], 0
        for slot, count in zip(slots, counts, strict=False):
            slot.length = start
            spans.append(Span(slot, end, end := end + count))
        attention = Attention(spans, end, heads, plan, qkv_PCD.dtype)
        return attention(0, torch.cat([qkv_PCD[start : start + count] for count in counts]))

    alone: dict[int, Tensor] = {}
    for start, counts in blocks(plan, heads):
        positions = range(start, start + max(counts))
        alone |= {position: rows(position, [1]) for position in positions if position not in alone}
        expected = torch.cat([alone[position] for position in positions])
        if not torch.equal(rows(start, counts), torch.cat([expected[:count] for count in counts])):
            return False
    return True


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
