"""The last check at load: the whole model, with the plans that were found, gives each row the same bits in any company.

Shape key: P positions of a sequence, T rows of a forward, R rows with logits, H hidden size, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from services.engine.batch import Block, Forward
from services.engine.cache.slots import Layout, Slots

SEED = 22
POSITIONS = 600
CHUNK = 64
# Every small count; and single rows and pairs around the place where more keys are read, then larger counts.
LENGTHS = (
    (*range(1, 34), 39),
    (508, *([1] * 6), *([2] * 4), 3, 5, 7, 16, 31),
)


def invariant(
    forward: Callable[..., Forward],
    layout: Layout,
    vocab_size: int,
    context: int,
    progress: Callable[[float], None] = lambda done: None,
) -> bool:
    """Two sequences run side by side in blocks of all lengths, against one alone in chunks; the caches are compared
    whole, the states after the last layer whole, the logits at the end of each block."""
    positions = min(POSITIONS, context)
    ids = torch.randint(vocab_size, (positions,), generator=torch.Generator().manual_seed(SEED)).tolist()
    chunks = list(_cut([CHUNK] * positions, positions))
    scripts = [list(_cut(lengths, positions)) for lengths in LENGTHS]
    ends = {end - 1 for script in scripts for _, end in script}
    pool = Slots(layout, rows=3 * positions, lanes=3, longest=positions)
    alone = pool.open(positions)
    hidden: list[Tensor] = []
    logits: dict[int, Tensor] = {}
    for begin, end in chunks:
        rows_TH, logits_RV = _run(forward, [Block(slot=alone, ids=ids[begin:end], wanted=end - begin)])
        alone.commit(end - begin)
        hidden.append(rows_TH)
        logits |= {at: logits_RV[at - begin].clone() for at in range(begin, end) if at in ends}
    hidden_PH = torch.cat(hidden)
    slots = [pool.open(positions) for _ in scripts]
    steps = max(map(len, scripts))
    for step in range(steps):
        progress((step + 1) / steps)
        running = [(slot, *script[step]) for slot, script in zip(slots, scripts, strict=True) if step < len(script)]
        blocks = [Block(slot=slot, ids=ids[begin:end], wanted=1) for slot, begin, end in running]
        rows_TH, logits_RV = _run(forward, blocks)
        if not torch.equal(rows_TH, torch.cat([hidden_PH[begin:end] for _, begin, end in running])):
            return False
        if not torch.equal(logits_RV, torch.stack([logits[end - 1] for _, _, end in running])):
            return False
        for slot, begin, end in running:
            slot.commit(end - begin)
    return all(
        torch.equal(slot.kv(layer)[: slot.length], alone.kv(layer)[: slot.length])
        for slot in slots
        for layer in range(layout.layers)
    )


def _run(forward: Callable[..., Forward], blocks: Sequence[Block]) -> tuple[Tensor, Tensor]:
    result = forward(blocks, hidden=True)
    assert result.hidden_TH is not None
    return result.hidden_TH, result.logits_RV


def _cut(lengths: Sequence[int], positions: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of these lengths, up to the last position."""
    begin = 0
    for length in lengths:
        if begin < positions:
            yield begin, min(begin + length, positions)
            begin += length
