"""The drafters that have weights, read from their folders. What they use of the target's folder is read once."""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch

from services.drafter.borrowed import Borrowed, read_ids
from services.drafter.dflash import DFlashDrafter
from services.drafter.draw import Draws
from services.drafter.interface import AnyDrafter
from services.drafter.mtp import MtpDrafter
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

DRAFT_VOCAB = "draft_vocab.json"
"""In a drafter's folder: the ids that it was trained to draft."""

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def load_models(
    folders: Mapping[str, Path],
    *,
    model: Path,
    draws: Mapping[str, Draws],
    dtype: str,
    threads: int | None = None,
    draft_vocab: Path | None = None,
) -> list[AnyDrafter]:
    """A drafter for each mode in `folders`. Drafts are restricted to the ids in `draft_vocab`, or else in the file of
    that name in a drafter's own folder. Raises BadCheckpoint or BadConfig, naming folder and key or setting."""
    if threads is not None:
        torch.set_num_threads(threads)
    vocab_size = Tokenizer(TokenizerFiles.read(model)).vocab_size
    target = Borrowed.read(model, dtype=DTYPES[dtype], vocab_size=vocab_size)
    restricted: dict[tuple[int, ...], Borrowed] = {}
    drafters = []
    for mode, folder in folders.items():
        borrowed, words = target, "all ids"
        if path := draft_vocab or _own_vocabulary(folder):
            ids = tuple(read_ids(path, vocab_size))
            borrowed, words = restricted.setdefault(ids, target.restricted(ids)), f"the {len(ids)} ids in {path}"
        drafters.append(_load(mode, folder, borrowed, draws[mode]))
        log.info("loaded %s from %s, to draft from %s", mode, folder, words)
    return drafters


def _own_vocabulary(folder: Path) -> Path | None:
    path = folder / DRAFT_VOCAB
    return path if path.is_file() else None


def _load(mode: str, folder: Path, target: Borrowed, draws: Draws) -> AnyDrafter:
    match mode:
        case "dflash" | "dflash2":
            return DFlashDrafter.load(mode, folder, target, draws=draws)
        case _:
            return MtpDrafter.load(folder, target, draws=draws)
