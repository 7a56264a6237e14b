"""An n-gram table from answers: which id followed each context most often, and how often it did.

Only ids of answers are counted as what follows; the contexts of the first few reach into the prompt. Entries that say
what the shorter context says already are left out, and where the table would be too large, contexts that occurred
seldom.

Shape key: P pairs of a context and what followed it, E distinct pairs, C contexts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from services.drafter.ngram_table import ARCHITECTURE, CHANCES, CONFIG, FILE
from services.training.answer import Answer
from services.training.files import write_json, write_tensors


@dataclass(frozen=True, slots=True)
class Counted:
    """Contexts of one length, ascending, the likeliest id after each, how often it followed, how often any did."""

    context_C: Tensor
    next_C: Tensor
    hits_C: Tensor
    seen_C: Tensor

    def only(self, kept_C: Tensor) -> "Counted":
        return Counted(self.context_C[kept_C], self.next_C[kept_C], self.hits_C[kept_C], self.seen_C[kept_C])


def count(answers: Iterable[Answer], *, order: int, vocab_size: int) -> list[Counted]:
    """For contexts of 1 to `order` - 1 ids; int64 throughout."""
    pairs: list[list[Tensor]] = [[] for _ in range(order - 1)]
    for answer in answers:
        for n, found in enumerate(_pairs(answer, order, vocab_size)):
            pairs[n].append(found)
    return [_counted(torch.cat(found, 1)) for found in pairs]


def _pairs(answer: Answer, order: int, vocab_size: int) -> Iterator[Tensor]:
    """For each length of context, the contexts and what followed [2, P]."""
    ids = torch.tensor([*answer.prompt_ids, *answer.ids])
    first = len(answer.prompt_ids)
    for n in range(1, order):
        begin = min(max(first, n), len(ids))
        context_P = torch.zeros(len(ids) - begin, dtype=torch.int64)
        for back in range(n, 0, -1):
            context_P = context_P * vocab_size + ids[begin - back : len(ids) - back]
        yield torch.stack([context_P, ids[begin:]])


def _counted(pairs_2P: Tensor) -> Counted:
    """Of ids that followed equally often, the lowest."""
    order_P = pairs_2P[1].argsort(stable=True)
    order_P = order_P[pairs_2P[0, order_P].argsort(stable=True)]
    pairs_2P = pairs_2P[:, order_P]
    begin_E, hits_E = _runs(pairs_2P)
    context_E, next_E = pairs_2P[:, begin_E]
    begin_C, size_C = _runs(context_E[None])
    owner_E = torch.repeat_interleave(torch.arange(len(begin_C)), size_C)
    seen_C = torch.zeros_like(begin_C).index_add_(0, owner_E, hits_E)
    most_C = torch.zeros_like(begin_C).scatter_reduce_(0, owner_E, hits_E, "amax")
    place_E = torch.arange(len(hits_E)).masked_fill(hits_E < most_C[owner_E], len(hits_E))
    best_C = torch.full_like(begin_C, len(hits_E)).scatter_reduce_(0, owner_E, place_E, "amin")
    return Counted(context_E[begin_C], next_E[best_C], most_C, seen_C)


def _runs(rows_XP: Tensor) -> tuple[Tensor, Tensor]:
    """Where runs of equal columns begin, and how long they are."""
    begins_P = torch.ones(rows_XP.shape[1], dtype=torch.bool)
    begins_P[1:] = (rows_XP[:, 1:] != rows_XP[:, :-1]).any(0)
    begin_E = begins_P.nonzero()[:, 0]
    return begin_E, torch.diff(begin_E, append=torch.tensor([rows_XP.shape[1]]))


def prune(counted: list[Counted], *, most_entries: int, vocab_size: int) -> list[Counted]:
    """Without what a shorter context says too, then without the contexts that occurred least often."""
    kept = [counted[0]]
    for n in range(1, len(counted)):
        shorter, longer = counted[n - 1], counted[n]
        place_C = torch.searchsorted(shorter.context_C, longer.context_C % vocab_size**n)
        kept.append(longer.only(shorter.next_C[place_C] != longer.next_C))
    least = 2
    while sum(len(each.context_C) for each in kept) > most_entries:
        kept = [each.only(each.seen_C >= least) for each in kept]
        least += 1
    return kept


def write(folder: Path, counted: list[Counted], *, vocab_size: int, tokenizer_hash: str) -> None:
    """The table's two files. Chances are hits / (seen + 1): what was seen once is a guess."""
    tensors = {}
    for n, each in enumerate(counted, 1):
        chance_C = each.hits_C / (each.seen_C + 1)
        tensors[f"context.{n}"] = each.context_C
        tensors[f"next.{n}"] = each.next_C.int()
        tensors[f"chance.{n}"] = (chance_C * CHANCES).round().clamp(min=1).to(torch.uint8)
    config = {
        "architectures": [ARCHITECTURE],
        "order": len(counted) + 1,
        "vocab_size": vocab_size,
        "tokenizer_hash": tokenizer_hash,
    }
    write_json(folder / CONFIG, config)
    write_tensors(folder / FILE, tensors)
