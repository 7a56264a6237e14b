"""The taps of a feed as a tensor.

Shape key: P positions, K taps of one drafter, H hidden size of the target.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from services.drafter.interface import Feed, Opening
from services.errors import InvalidRequest

# A feed's bytes are read where they lie, in a message or in another process's memory, and never written. PyTorch warns
# of such a buffer once in a process.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.frombuffer(b"0", dtype=torch.uint8)

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}


def columns(opening: Opening, layers: Sequence[int], *, final_hidden: bool = False) -> tuple[int, ...]:
    """Where a drafter's layers, in its own order, and then the final state lie in the feeds of a sequence."""
    own = [opening.tap_layers.index(layer) for layer in layers]
    return (*own, len(opening.tap_layers)) if final_hidden else tuple(own)


def read_taps(feed: Feed, columns: Sequence[int], dtype: torch.dtype, *, copy: bool) -> Tensor:
    """[P, K, H]. Without `copy` the result may lie in the feed's own bytes, which end with the call that brought it."""
    taps = feed.taps
    if taps is None:
        raise InvalidRequest("taps are needed", field="feed.taps")
    all_PXH = torch.frombuffer(taps.data, dtype=DTYPES[taps.dtype]).view(taps.shape)
    own_PKH = all_PXH if tuple(columns) == tuple(range(taps.shape[1])) else all_PXH[:, list(columns)]
    return own_PKH.to(dtype, copy=copy)
