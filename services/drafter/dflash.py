"""DFlash and DFlash2 as drafters: one pass over a block of masks proposes all of its tokens.

Shape key: S sequences, J drafts of each, T rows of their blocks, P positions, H hidden size, V rows of the embedding,
X taps side by side, D ids that may be drafted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding

from services.drafter.borrowed import Borrowed
from services.drafter.checkpoints.fit import check_fit
from services.drafter.checkpoints.formats import read_recipe
from services.drafter.checkpoints.recipe import Recipe
from services.drafter.checkpoints.speculators import EMBEDDING, read_head
from services.drafter.checkpoints.tensors import Plan
from services.drafter.draw import Drawn, Draws, draw, sampling
from services.drafter.interface import Ask, Description, Draft, Feed, Opening
from services.drafter.models.dflash import DFlashBody, Memory
from services.drafter.models.head import Head
from services.drafter.models.selector import CandidateSelector
from services.drafter.taps import columns, read_taps
from services.engine.sampling.params import SamplingParams
from services.engine.weights.checkpoint import Checkpoint
from services.errors import BadCheckpoint, BadConfig, InvalidRequest

Mode = Literal["dflash", "dflash2"]
MODES: dict[int, Mode] = {1: "dflash", 2: "dflash2"}

ENOUGH = 128
"""Positions that are worth a pass of their own; fewer wait for the next draft, and share one pass with others'."""


class DFlashContext:
    """Taps of the last few positions wait; what is before them is in memory."""

    __slots__ = ("anchor", "columns", "fed", "memory", "params", "waiting")

    def __init__(self, opening: Opening, params: SamplingParams, columns: Sequence[int], memory: Memory) -> None:
        self.fed = 0
        self.anchor = opening.first_id
        self.params = params
        self.columns = columns
        self.memory = memory
        self.waiting: list[Tensor] = []


class DFlashDrafter:
    """Drafts at the block size it was trained with, whatever is asked for: rows see how many masks there are."""

    def __init__(self, mode: Mode, folder: Path, target: Borrowed, draws: Draws) -> None:
        recipe = read_recipe(folder)
        if MODES[recipe.version] != mode:
            raise BadConfig(f"drafter.{mode}: {folder} holds a drafter for drafter.{MODES[recipe.version]}")
        checkpoint = Checkpoint.open(folder)
        plan = Plan.of(recipe, checkpoint)
        own_embedding = recipe.may_embed and EMBEDDING in checkpoint
        self._embedding_VH = checkpoint.read(EMBEDDING, target.dtype) if own_embedding else target.embedding_VH
        check_fit(recipe, target, len(self._embedding_VH))
        self._recipe, self._draws, self._dtype = recipe, draws, target.dtype
        self._head = _head(recipe, checkpoint, target)
        self._body = DFlashBody(plan, checkpoint, target.dtype)
        self._selector = CandidateSelector(plan, checkpoint, self._head, target.dtype) if recipe.selector else None
        self.description = Description(
            mode=mode,
            name=folder.resolve().name,
            max_draft_tokens=recipe.block_size - 1,
            default_draft_tokens=recipe.block_size - 1,
            context_length=recipe.body.context_length,
            tap_layers=tuple(sorted(set(recipe.taps))),
            gives_confidence=True,
            target_hidden_size=target.hidden_size,
            target_vocab_size=target.vocab_size,
            target_fingerprint=target.fingerprint,
        )

    @classmethod
    def load(cls, mode: Mode, folder: Path, target: Borrowed, *, draws: Draws) -> Self:
        """Raises BadCheckpoint, or BadConfig for a drafter of the other mode; both name the folder."""
        try:
            return cls(mode, folder, target, draws)
        except BadCheckpoint as error:
            raise BadCheckpoint(f"drafter.{mode}: {folder}: {error}") from error

    @torch.inference_mode()
    def open(self, opening: Opening) -> DFlashContext:
        own = columns(opening, self._recipe.taps)
        return DFlashContext(opening, sampling(opening, self._draws), own, self._body.memory())

    @torch.inference_mode()
    def absorb(self, context: DFlashContext, feed: Feed) -> None:
        few = len(feed.ids) < ENOUGH
        taps_PX = read_taps(feed, context.columns, self._dtype, copy=few).flatten(1)
        context.waiting.append(taps_PX)
        context.fed = feed.end
        context.anchor = feed.ids[-1]
        if not few or sum(map(len, context.waiting)) >= ENOUGH:
            self._remember([context])

    @torch.inference_mode()
    def draft(self, asks: Sequence[Ask[DFlashContext]]) -> list[Draft]:
        contexts = [ask.context for ask in asks]
        for context in contexts:
            if not 0 <= context.anchor < self._head.vocab_size:  # it is looked up in embedding and codebook
                raise InvalidRequest(f"anchor {context.anchor} is not an id from 0 to {self._head.vocab_size - 1}")
        self._remember([context for context in contexts if context.waiting])
        count, size = max(ask.max_draft_tokens for ask in asks), self._recipe.block_size
        masks = [self._recipe.mask_id] * (size - 1)
        ids_T = torch.tensor([id for context in contexts for id in (context.anchor, *masks)])
        x_TH = embedding(ids_T, self._embedding_VH) * self._recipe.embedding_scale
        hidden_TH = self._body(x_TH, [context.memory for context in contexts])
        hidden_SJH = hidden_TH.view(len(asks), size, -1)[:, 1 : 1 + count]  # the anchor's own row says nothing
        drawn = self._draw(hidden_SJH, contexts)
        return [
            Draft(tuple(each.ids[: ask.max_draft_tokens]), tuple(each.confidences[: ask.max_draft_tokens]))
            for ask, each in zip(asks, drawn, strict=True)
        ]

    def close(self, context: DFlashContext) -> None:
        """The garbage collector frees it with the last reference."""

    def _remember(self, contexts: Sequence[DFlashContext]) -> None:
        if contexts:
            taps_TX = torch.cat([taps_PX for context in contexts for taps_PX in context.waiting])
            counts = [sum(map(len, context.waiting)) for context in contexts]
            self._body.absorb(taps_TX, [context.memory for context in contexts], counts)
        for context in contexts:
            context.waiting.clear()

    def _draw(self, hidden_SJH: Tensor, contexts: Sequence[DFlashContext]) -> list[Drawn]:
        logits_SJD = self._logits(hidden_SJH)
        params = [context.params for context in contexts]
        if self._selector is not None:
            anchors, frontiers = [context.anchor for context in contexts], [context.fed for context in contexts]
            return self._selector.walk(logits_SJD, hidden_SJH, anchors, params, frontiers)
        count = logits_SJD.shape[1]
        positions = [context.fed + 1 + row for context in contexts for row in range(count)]
        repeated = [each for each in params for _ in range(count)]
        drawn = draw(logits_SJD.flatten(0, 1), self._head, repeated, positions)
        starts = range(0, len(drawn.ids), count)
        return [Drawn(drawn.ids[at : at + count], drawn.confidences[at : at + count]) for at in starts]

    def _logits(self, hidden_SJH: Tensor) -> Tensor:
        logits_SJD = self._head(hidden_SJH.flatten(0, 1)).view(*hidden_SJH.shape[:2], -1) * self._recipe.multiplier
        cap = self._recipe.softcap
        return logits_SJD if cap is None else (logits_SJD / cap).tanh() * cap


def _head(recipe: Recipe, checkpoint: Checkpoint, target: Borrowed) -> Head:
    if recipe.draft_vocab_size is None:
        return target.head
    return read_head(checkpoint, recipe.draft_vocab_size, vocab_size=target.vocab_size, dtype=target.dtype)
