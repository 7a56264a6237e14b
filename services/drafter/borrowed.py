"""What every drafter uses of its target's folder: embedding and head, read once for all of them.

Shape key: V rows of the embedding, padded ones included, D ids that may be drafted, H hidden size.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from services.drafter.models.head import Head
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadCheckpoint, BadConfig

# Text models, and two ways in which a model that also sees images keeps the one that it speaks with.
EMBEDDINGS = tuple(
    f"{prefix}embed_tokens.weight" for prefix in ("model.", "model.language_model.", "language_model.model.")
)
# A model that scales its embedding or its logits itself: rows and head alone would not say what it says.
SCALES = ("final_logit_softcapping", "embedding_multiplier", "logits_scaling", "logit_scale")
HEADS = ("lm_head.weight", "language_model.lm_head.weight", "model.language_model.lm_head.weight")


@dataclass(frozen=True, kw_only=True)
class Borrowed:
    """`vocab_size` counts the ids of the tokenizer; the embedding may have more rows, and a mask may lie among those.

    `ids` are all that may be drafted; None: every id. `fingerprint` is the target's own hash of its weights."""

    embedding_VH: Tensor
    head_VH: Tensor
    ids: Sequence[int] | None
    vocab_size: int
    layers: int
    fingerprint: str
    dtype: torch.dtype

    @property
    def hidden_size(self) -> int:
        return self.embedding_VH.shape[1]

    @cached_property
    def head(self) -> Head:
        head_DH = self.head_VH if self.ids is None else self.head_VH[list(self.ids)]
        return Head.of(head_DH, self.ids, self.vocab_size)

    def restricted(self, ids: Sequence[int]) -> Self:
        """The same memory, and a head over these ids alone."""
        return replace(self, ids=ids)

    @classmethod
    def read(cls, folder: Path, *, dtype: torch.dtype, vocab_size: int, draft_vocab: Path | None = None) -> Self:
        """`draft_vocab` names a file of ids, to which drafts are restricted. Raises BadCheckpoint and BadConfig."""
        keys = Keys.read(folder / "config.json")
        if "quantization_config" in keys:
            raise keys.wrong("quantization_config", "absent: quantised checkpoints cannot be read")
        text = keys.table("text_config") if "text_config" in keys else keys
        for key in SCALES:
            if key in text:
                raise text.wrong(
                    key, "absent: drafters cannot borrow from a target that scales its embedding or logits"
                )
        if "model_type" in text and text.text("model_type").startswith("gemma"):
            raise text.wrong("model_type", "of a family that does not scale its embedding")
        shape = text.integer("vocab_size"), text.integer("hidden_size")
        if vocab_size > shape[0]:
            raise BadCheckpoint(f"{folder}: the tokenizer has {vocab_size} ids, config.json a vocab_size of {shape[0]}")
        ids = None if draft_vocab is None else read_ids(draft_vocab, vocab_size)
        checkpoint = Checkpoint.open(folder)
        embedding = _find(checkpoint, EMBEDDINGS, folder)
        tied = keys.flag("tie_word_embeddings", text.flag("tie_word_embeddings", False))  # the outer one is in force
        head = embedding if tied else _find(checkpoint, HEADS, folder)
        checkpoint.check({embedding: shape, head: shape}, ignored=lambda _: True)
        embedding_VH = checkpoint.read(embedding, dtype)
        return cls(
            embedding_VH=embedding_VH,
            head_VH=embedding_VH if tied else checkpoint.read(head, dtype),
            ids=ids,
            vocab_size=vocab_size,
            layers=text.integer("num_hidden_layers"),
            fingerprint=checkpoint.hash(),
            dtype=dtype,
        )


def _find(checkpoint: Checkpoint, names: tuple[str, ...], folder: Path) -> str:
    found = [name for name in names if name in checkpoint]
    if len(found) != 1:
        raise BadCheckpoint(f"{folder} has to have one of {', '.join(names)}; it has {len(found)}")
    return found[0]


def read_ids(path: Path, vocab_size: int) -> list[int]:
    """A JSON list of ids, or one id a line. Raises BadConfig naming the setting."""
    try:
        text = path.read_text(encoding="utf-8")
        ids = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.split()]
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfig(
            f"drafter.draft_vocab: {path} is neither a JSON list of ids nor one id a line: {error}"
        ) from None
    for id in ids:
        if type(id) is not int or not 0 <= id < vocab_size:
            raise BadConfig(f"drafter.draft_vocab: {path} has {id!r:.40}, which is no id from 0 to {vocab_size - 1}")
    if not ids or len(set(ids)) < len(ids):
        raise BadConfig(f"drafter.draft_vocab: {path} has to name some ids, each once")
    return list(ids)
