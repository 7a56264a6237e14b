"""z-lab's own repositories: DFlashDraftModel (arXiv 2602.06036) and DFlash2DraftModel.

What is special to a drafter stands in `dflash_config`, in early files partly beside it: nested keys come first.
"""

from typing import Literal

from services.drafter.checkpoints.recipe import (
    FULL,
    SLIDING,
    Body,
    Conv,
    Recipe,
    Selector,
    read_block_size,
    read_reach,
)
from services.engine.weights.config import Keys

DEFAULT_BLOCK_SIZE = 16

NESTED = frozenset(
    {
        "block_size",
        "mask_token_id",
        "target_layer_ids",
        "output_multiplier",
        "final_logit_softcapping",
        "input_embedding_scale",
        "conv_kernel_size",
        "conv_group_size",
        "selector_rank",
        "selector_top_k",
    }
)


def read(keys: Keys, version: Literal[1, 2]) -> Recipe:
    nested = keys.table("dflash_config")
    for key in nested:
        if key not in NESTED:
            raise nested.wrong(key, f"absent: this version knows only {', '.join(sorted(NESTED))}")

    def place(key: str) -> Keys:
        return nested if key in nested else keys

    body = Body.read(keys)
    if version == 2 and body.vocab_size is None:
        raise keys.wrong("vocab_size", "a positive integer: the codebooks have so many rows")
    if "draft_vocab_size" in keys and keys.integer("draft_vocab_size") != body.vocab_size:
        raise keys.wrong(
            "draft_vocab_size", "the vocab_size, or absent: a head of its own needs the speculators format"
        )
    causal = keys.flag("is_causal", False) if "is_causal" in keys else None
    selector = place("selector_rank")
    return Recipe(
        version=version,
        body=body,
        reach=tuple(read_reach(keys, body.layers, kinds=_derived(keys, body), causal=causal, sliding_causal=True)),
        block_size=read_block_size(place("block_size"), DEFAULT_BLOCK_SIZE),
        mask_id=place("mask_token_id").index("mask_token_id"),
        taps=place("target_layer_ids").indices("target_layer_ids") or default_taps(keys, body.layers),
        target_layers=keys.integer("num_target_layers") if "num_target_layers" in keys else None,
        multiplier=place("output_multiplier").number("output_multiplier", 1.0),
        softcap=_softcap(place("final_logit_softcapping")),
        embedding_scale=place("input_embedding_scale").number("input_embedding_scale", 1.0),
        conv=Conv.read(place("conv_kernel_size"), body.hidden_size) if version == 2 else None,
        selector=Selector.read(selector) if version == 2 else None,
    )


def default_taps(keys: Keys, layers: int) -> tuple[int, ...]:
    """From the second layer to the third from the end, evenly; the middle one for a drafter of one layer."""
    of = keys.integer("num_target_layers")
    if layers == 1:
        return (of // 2,)
    if of < 4:
        raise keys.wrong("num_target_layers", "at least 4 where no target_layer_ids are listed")
    return tuple(round(1 + index * (of - 4) / (layers - 1)) for index in range(layers))


def _derived(keys: Keys, body: Body) -> list[str]:
    """What Qwen3's configuration makes of a file that lists no kinds."""
    windowed = "sliding_window" in keys and keys.flag("use_sliding_window", False)
    full = keys.integer("max_window_layers", 28) if windowed else body.layers
    return [FULL if layer < full else SLIDING for layer in range(body.layers)]


def _softcap(keys: Keys) -> float | None:
    return keys.number("final_logit_softcapping") if "final_logit_softcapping" in keys else None
