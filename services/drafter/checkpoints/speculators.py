"""The `speculators` library's format: `transformer_layer_config` holds the layers, what is special stands beside it.

`aux_hidden_state_layer_ids` count from the embedding: id i + 1 is the output of layer i. A reduced vocabulary comes
with a head of its own and `d2t`, which holds offsets: row d is target id d + d2t[d].

Shape key: D rows of the drafter's head, V ids of the target, H hidden size.
"""

from typing import Literal

import torch

from services.drafter.checkpoints.recipe import (
    FULL,
    Body,
    Conv,
    Recipe,
    Selector,
    read_block_size,
    read_reach,
)
from services.drafter.models.head import Head
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadCheckpoint

DEFAULT_BLOCK_SIZE = 8
HEAD, OFFSETS, CHOSEN, EMBEDDING = "lm_head.weight", "d2t", "t2d", "embed_tokens.weight"


def read(keys: Keys) -> Recipe:
    version: Literal[1, 2] = 2 if keys.one_of("speculators_model_type", ("dflash", "dflash2")) == "dflash2" else 1
    if "transformer_layer_config" not in keys:
        raise keys.wrong("transformer_layer_config", "an object")
    layers = keys.table("transformer_layer_config")
    body = Body.read(layers)
    if keys.integer("target_hidden_size", body.hidden_size) != body.hidden_size:
        raise keys.wrong("target_hidden_size", f"transformer_layer_config's hidden_size, {body.hidden_size}")
    auxiliary = keys.indices("aux_hidden_state_layer_ids")
    if not auxiliary or min(auxiliary) < 1:
        raise keys.wrong("aux_hidden_state_layer_ids", "a list of integers from 1 on: 1 is the first layer's output")
    sliding_causal = not keys.flag("sliding_window_non_causal", version == 2)
    kinds = [FULL] * body.layers
    vocab_size = layers.integer("vocab_size")
    draft_vocab_size = keys.integer("draft_vocab_size", vocab_size)
    if draft_vocab_size > vocab_size or (version == 2 and draft_vocab_size < vocab_size):
        legal = "the vocab_size" if version == 2 else "at most the vocab_size"
        raise keys.wrong("draft_vocab_size", f"{legal} of transformer_layer_config, {vocab_size}")
    return Recipe(
        version=version,
        body=body,
        reach=tuple(read_reach(layers, body.layers, kinds=kinds, causal=None, sliding_causal=sliding_causal)),
        block_size=read_block_size(keys, DEFAULT_BLOCK_SIZE),
        mask_id=keys.index("mask_token_id"),
        taps=tuple(id - 1 for id in auxiliary),
        may_embed=True,
        draft_vocab_size=draft_vocab_size if draft_vocab_size < vocab_size else None,
        conv=Conv.read(keys, body.hidden_size) if version == 2 else None,
        selector=Selector.read(keys) if version == 2 else None,
    )


def read_head(checkpoint: Checkpoint, size: int, *, vocab_size: int, dtype: torch.dtype) -> Head:
    """The drafter's own head of `size` rows. Raises BadCheckpoint for a map that is none."""
    for name, kinds in ((OFFSETS, ("I64", "I32")), (CHOSEN, ("BOOL",))):
        if name in checkpoint and checkpoint.form(name)[0] not in kinds:
            raise BadCheckpoint(f"{name} is stored as {checkpoint.form(name)[0]}; legal are {', '.join(kinds)}")
    ids_D = torch.arange(size) + checkpoint.read(OFFSETS, torch.int64)
    if ids_D.min() < 0 or len(set(ids_D.tolist())) < size:
        raise BadCheckpoint(f"{OFFSETS} has to give each row an id of its own, from 0 on: row d is id d + {OFFSETS}[d]")
    if ids_D.min() >= vocab_size:
        raise BadCheckpoint(f"{OFFSETS} names no id of the target, which has {vocab_size}")
    if CHOSEN in checkpoint:
        chosen_V = checkpoint.read(CHOSEN, torch.bool)
        if not torch.equal(chosen_V.nonzero()[:, 0], ids_D.sort().values):
            raise BadCheckpoint(f"{CHOSEN} and {OFFSETS} name different ids")
    return Head.of(checkpoint.read(HEAD, dtype), ids_D.tolist(), vocab_size)
