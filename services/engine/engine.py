"""One model ready to run: blocks of many sequences in, logits out.

Shape key: T rows of a forward, R rows that need logits, V vocabulary, H hidden size.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from services.engine.batch import Block, Forward
from services.engine.cache.slots import Layout, Slot, Slots
from services.engine.models.families import architecture
from services.engine.models.trunk import Architecture, Model
from services.engine.numerics.check import invariant
from services.engine.numerics.fingerprint import digest, machine
from services.engine.numerics.numerics import Numerics, Plans
from services.engine.numerics.store import Store
from services.engine.ops.plan import FORMAT
from services.engine.pack import Packed, pack
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadCheckpoint, BadConfig

CONFIG = "config.json"


class Engine:
    """Used by one thread at a time. While `numerics.exact`, what it gives for a row depends on that sequence alone."""

    numerics: Numerics
    weights_hash: str

    def __init__(
        self, design: Architecture, model: Model, multiple: int, layout: Layout, cache_rows: int, max_sequences: int
    ) -> None:
        """`multiple`: what the rows of a forward are padded to."""
        self.vocab_size = model.vocab_size
        self.context = model.context
        self.hidden_size = design.hidden_size
        self.layers = design.layers
        self.dtype = layout.dtype
        self._model = model
        self._multiple = multiple
        longest = min(self.context, cache_rows)
        self._slots = Slots(layout, rows=cache_rows, lanes=max_sequences, longest=longest)
        self._threads = torch.get_num_threads()

    @staticmethod
    def check(folder: Path) -> None:
        """Raises BadCheckpoint for a folder that `load` would refuse, without reading a tensor."""
        _open(folder)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        dtype: torch.dtype,
        threads: int | None = None,
        cache_rows: int,
        max_sequences: int = 64,
        vocab_size: int | None = None,
        context: int | None = None,
        cache: Path | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Self:
        """`vocab_size`: how many ids the tokenizer knows, where the checkpoint has padded rows. `context`: at most the
        model's. `cache`: where the numerics table is kept when `folder` cannot be written.

        `progress` gets a stage ("numerics", "weights", "check") and the part of it that is done. The first and the last
        are left out when they passed before."""
        report = progress or (lambda stage, done: None)
        design, checkpoint = _open(folder)
        vocab_size, context = _within(design, vocab_size, context)
        if threads is not None:
            torch.set_num_threads(threads)
        weights_hash = checkpoint.hash()
        about = [weights_hash, (folder / CONFIG).read_bytes(), vocab_size, dtype, machine()]
        identity = digest(*about, torch.get_num_threads(), torch.__version__, FORMAT)
        store = Store([folder / ".tandem", *([cache / "numerics"] if cache else [])], identity)
        operators = design.operators(vocab_size)
        plans = Plans(store, identity, operators, design.heads, dtype, partial(report, "numerics"))
        model = design.load(
            checkpoint,
            plans.table,
            dtype=dtype,
            vocab_size=vocab_size,
            context=context,
            progress=partial(report, "weights"),
        )
        layout = Layout(
            layers=design.layers,
            kv_heads=design.heads.kv,
            head_dim=design.heads.dim,
            dtype=dtype,
            page=plans.table.attention.keys,
        )
        engine = cls(design, model, plans.table.multiple, layout, cache_rows, max_sequences)
        engine.weights_hash = weights_hash
        engine.numerics = plans.judge(
            lambda: invariant(engine.forward, layout, vocab_size, context, partial(report, "check"))
        )
        return engine

    @property
    def free_rows(self) -> int:
        return self._slots.free_rows

    def open(self, rows: int) -> Slot:
        """Reserve `rows` rows. Raises Overloaded when they do not fit the budget."""
        return self._slots.open(rows)

    def close(self, slot: Slot) -> None:
        """Free the slot; a second time changes nothing."""
        self._slots.close(slot)

    @torch.no_grad()
    def forward(self, blocks: Sequence[Block], *, taps: Sequence[int] = (), hidden: bool = False) -> Forward:
        """Run all rows of all blocks in one pass. The caller commits what it keeps of each slot; what it does not is
        dropped by the slot's next forward."""
        if torch.get_num_threads() != self._threads:  # it belongs to the calling thread, and it decides bits
            torch.set_num_threads(self._threads)
        _check_blocks(blocks)
        if not all(0 <= layer < self.layers for layer in taps):
            raise ValueError(f"taps {list(taps)} of a model with {self.layers} layers")
        for block in blocks:
            block.slot.begin(len(block.ids))
        packed = pack(blocks, self._multiple)
        trunk = self._model(packed, taps)
        return Forward(
            logits_RV=self._logits(trunk.hidden_TH, packed),
            taps={layer: trunk.taps[layer][: packed.rows] for layer in taps},
            hidden_TH=trunk.hidden_TH[: packed.rows] if hidden else None,
        )

    def _logits(self, hidden_TH: Tensor, packed: Packed) -> Tensor:
        if not packed.wanted:
            return torch.empty(0, self.vocab_size)
        return self._model.head(hidden_TH[packed.wanted_R])[: packed.wanted].float()


def _open(folder: Path) -> tuple[Architecture, Checkpoint]:
    design = architecture(Keys.read(folder / CONFIG))
    checkpoint = Checkpoint.open(folder)
    design.check(checkpoint)
    return design, checkpoint


def _within(design: Architecture, vocab_size: int | None, context: int | None) -> tuple[int, int]:
    if vocab_size is not None and vocab_size > design.vocab_size:
        raise BadCheckpoint(f"the tokenizer has {vocab_size} ids and {CONFIG} a vocab_size of {design.vocab_size}")
    if context is not None and not 0 < context <= design.context:
        raise BadConfig(f"context is {context}; legal are 1 to {design.context}, for which the model is made")
    return vocab_size or design.vocab_size, context or design.context


def _check_blocks(blocks: Sequence[Block]) -> None:
    if not blocks:
        raise ValueError("a forward without blocks")
    if len({id(block.slot) for block in blocks}) < len(blocks):
        raise ValueError("two blocks of one slot")
    if len({id(block.slot.pool) for block in blocks}) > 1:
        raise ValueError("blocks of slots of several pools")
    for block in blocks:
        if not 0 <= block.wanted <= len(block.ids):
            raise ValueError(f"{block.wanted} rows wanted of {len(block.ids)}")
