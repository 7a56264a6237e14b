"""transformers' own form (`muse_glimmer_assistant`): flat keys, and the context projection under `encoder.`.

Its attention is bidirectional in every layer. Windows are read as z-lab means them, whose drafters these are: a row
sees `window` - 1 positions before itself, where transformers' masks show it one more.
"""

from services.drafter.checkpoints.recipe import SLIDING, Body, Recipe, read_block_size, read_reach
from services.engine.weights.config import Keys

MODEL_TYPE = "muse_glimmer_assistant"
DEFAULT_BLOCK_SIZE = 16


def read(keys: Keys) -> Recipe:
    body = Body.read(keys)
    taps = keys.indices("target_layer_ids")
    if not taps:
        raise keys.wrong("target_layer_ids", "a list of integers from 0 on")
    kinds = [SLIDING] * body.layers
    return Recipe(
        version=1,
        body=body,
        reach=tuple(read_reach(keys, body.layers, kinds=kinds, causal=False, sliding_causal=False)),
        block_size=read_block_size(keys, DEFAULT_BLOCK_SIZE),
        mask_id=keys.index("mask_token_id"),
        taps=taps,
        encoder_names=True,
    )
