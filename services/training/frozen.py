"""What a drafter borrows of its target and never changes: embedding and head.

Shape key: V rows of the embedding, D ids that losses are computed over, H hidden size, X rows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from services.drafter.borrowed import EMBEDDINGS, HEADS
from services.engine.weights.checkpoint import Checkpoint
from services.errors import BadCheckpoint
from services.training.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """`ids_D` ascending; `column_V` is the place of an id among them, -1 for the others, which no loss counts."""

    embedding_VH: Tensor
    head_DH: Tensor
    ids_D: Tensor
    column_V: Tensor

    @classmethod
    def read(
        cls, checkpoint: Checkpoint, *, tied: bool, vocab_size: int, ids: Iterable[int] | None, dtype: torch.dtype
    ) -> Self:
        """`ids` to compute losses over; None: all that the tokenizer knows."""
        embedding_VH = checkpoint.read(_find(checkpoint, EMBEDDINGS), dtype)
        head_VH = embedding_VH if tied else checkpoint.read(_find(checkpoint, HEADS), dtype)
        ids_D = torch.arange(vocab_size) if ids is None else torch.tensor(sorted(ids))
        column_V = torch.full((len(embedding_VH),), -1)
        column_V[ids_D] = torch.arange(len(ids_D))
        return cls(embedding_VH=embedding_VH, head_DH=head_VH[ids_D], ids_D=ids_D, column_V=column_V)

    def to(self, device: str) -> "Frozen":
        moved = (tensor.to(device) for tensor in (self.embedding_VH, self.head_DH, self.ids_D, self.column_V))
        return Frozen(**dict(zip(("embedding_VH", "head_DH", "ids_D", "column_V"), moved, strict=True)))

    def logits(self, hidden_XH: Tensor) -> Tensor:
        """fp32 [X, D]."""
        return (hidden_XH.to(self.head_DH.dtype) @ self.head_DH.T).float()


def most_frequent(answers: Iterable[Answer], count: int) -> list[int]:
    """The ids that the target wrote most often, of equals the lowest; fewer where it wrote fewer."""
    seen = Counter(id for answer in answers for id in answer.ids)
    return sorted(sorted(seen, key=lambda id: (-seen[id], id))[:count])


def _find(checkpoint: Checkpoint, names: Iterable[str]) -> str:
    for name in names:
        if name in checkpoint:
            return name
    raise BadCheckpoint(f"the target has none of {', '.join(names)}")
