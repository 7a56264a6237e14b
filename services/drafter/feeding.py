"""Feeds made of tensors, for who drafts without a wire in between.

Shape key: P positions, K taps, H hidden size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from services.drafter.interface import Feed
from services.wire.codec import TensorBytes

_NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.float16: "fp16"}


def feed_of(start: int, ids: Sequence[int], taps_PKH: Tensor | None = None) -> Feed:
    """`ids` of positions start + 1 .. start + P and the taps of one before each; without taps, any number of ids."""
    if taps_PKH is None:
        return Feed(start, ids)
    data = taps_PKH.contiguous().view(torch.uint8).numpy().tobytes()
    return Feed(start, ids, TensorBytes(_NAMES[taps_PKH.dtype], tuple(taps_PKH.shape), data))
