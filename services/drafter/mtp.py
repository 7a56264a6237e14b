"""Drafts with a multi-token-prediction module, run again on its own output for every further token.

Row t of layer 0 pairs the target's state at position t with the id of t + 1; row t of layer i pairs what layer i - 1
made of row t with the id of t + 1 + i. So layer i is final up to row fed - 2 - i. The rows behind it ended in drafted
ids or in the module's own states; they are cropped, and made again from what was committed:

      0 ............... settled - i | open rows | drafted rows
        keys and values that stay   | cropped by the next pass

The last position fed is never settled: its row ends in the anchor, and the first draft token is read from it.

Shape key: T rows, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from services.drafter.borrowed import Borrowed
from services.drafter.checkpoints import mtp as checkpoints
from services.drafter.draw import Draws, draw, sampling
from services.drafter.interface import Ask, Description, Draft, Feed, Opening
from services.drafter.models.keys import Past
from services.drafter.models.mtp import MtpModel, Rows
from services.drafter.taps import columns, read_taps
from services.engine.sampling.params import SamplingParams
from services.errors import BadCheckpoint

MAX_DRAFT_TOKENS = 8
DEFAULT_DRAFT_TOKENS = 3
AT_ONCE = 128
"""Positions that are computed when they come; fewer wait for the next draft, where one pass serves all sequences."""


class MtpContext:
    """What is known of a sequence. `ids` are those of positions settled + 1 .. fed, `hidden` the target's states of
    settled .. fed - 1; `carried[i]` is what layer i - 1 made of the first row that layer i has open."""

    __slots__ = ("carried", "column", "fed", "hidden", "ids", "params", "pasts", "settled")

    def __init__(self, pasts: list[Past], params: SamplingParams, column: int) -> None:
        self.pasts, self.params, self.column = pasts, params, column
        self.fed = self.settled = 0
        self.ids: list[int] = []
        self.hidden: list[Tensor] = []
        self.carried: list[Tensor | None] = [None] * len(pasts)

    def open_rows(self, layer: int, ids: Sequence[int], state_TH: Tensor, *, end: int) -> Rows:
        """The rows of `layer` from its first open one up to `end`. `ids` begin at settled + 1; `state_TH` is what the
        layer before made of its own open rows, of which this one has one more where it has any settled."""
        first, skipped = max(self.settled - layer, 0), max(layer - self.settled, 0)
        carried = self.carried[layer]
        if layer and not skipped and carried is not None:
            state_TH = torch.cat((carried[None], state_TH))
        if self.fed - 1 >= layer > 0:
            self.carried[layer] = state_TH[self.fed - 1 - layer - first].clone()
        self.pasts[layer].crop(first)
        return Rows(self.pasts[layer], first + layer, ids[skipped : skipped + end - first], state_TH[: end - first])

    def settle(self) -> None:
        """All layers have made the rows that are final now."""
        self.settled = self.fed - 1
        self.ids, self.hidden = self.ids[-1:], [self.hidden[-1][-1:].clone()]


@dataclass(slots=True)
class Running:
    """One draft on its way: `ids` as the context's, with what was drafted; `state_TH` the rows of the last pass."""

    context: MtpContext
    count: int
    ids: list[int]
    state_TH: Tensor
    drafted: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)


class MtpDrafter:
    """Proposes 1 .. 8 tokens: the module's layers in turn, again from the first when there are no more."""

    def __init__(self, folder: Path, target: Borrowed, draws: Draws) -> None:
        recipe, checkpoint = checkpoints.read(folder)
        checkpoints.check_fit(recipe, target)
        self._model = MtpModel(recipe, checkpoint, target.embedding_VH, target.dtype)
        self._head, self._draws = target.head, draws
        self.description = Description(
            mode="mtp",
            name=folder.resolve().name,
            max_draft_tokens=MAX_DRAFT_TOKENS,
            default_draft_tokens=DEFAULT_DRAFT_TOKENS,
            context_length=recipe.context,
            needs_final_hidden=True,
            gives_confidence=True,
            target_hidden_size=target.hidden_size,
            target_vocab_size=target.vocab_size,
            target_fingerprint=target.fingerprint,
        )

    @classmethod
    def load(cls, folder: Path, target: Borrowed, *, draws: Draws) -> Self:
        """From a target's folder or one of its own. Raises BadCheckpoint naming it."""
        try:
            return cls(folder, target, draws)
        except BadCheckpoint as error:
            raise BadCheckpoint(f"drafter.mtp: {folder}: {error}") from error

    def open(self, opening: Opening) -> MtpContext:
        column = columns(opening, (), final_hidden=True)[0]
        return MtpContext(self._model.pasts(), sampling(opening, self._draws), column)

    @torch.inference_mode()
    def absorb(self, context: MtpContext, feed: Feed) -> None:
        at_once = len(context.ids) + len(feed.ids) >= AT_ONCE
        hidden_T1H = read_taps(feed, (context.column,), self._model.dtype, copy=not at_once)
        context.ids += feed.ids
        context.hidden.append(hidden_T1H[:, 0])
        context.fed = feed.end
        if at_once:
            self._settle(context, 0, context.ids, torch.cat(context.hidden))

    @torch.inference_mode()
    def draft(self, asks: Sequence[Ask[MtpContext]]) -> list[Draft]:
        """Nothing for a context that was never fed."""
        fed = [(index, ask) for index, ask in enumerate(asks) if ask.context.fed]
        running = {
            index: Running(ask.context, ask.max_draft_tokens, list(ask.context.ids), torch.cat(ask.context.hidden))
            for index, ask in fed
        }
        for step in range(max((each.count for each in running.values()), default=0)):
            self._step(step, [each for each in running.values() if step < each.count])
        for each in running.values():
            self._settle(each.context, each.count, each.ids, each.state_TH)
        drafts = [Draft()] * len(asks)
        for index, each in running.items():
            drafts[index] = Draft(tuple(each.drafted), tuple(each.confidences))
        return drafts

    def close(self, context: MtpContext) -> None:
        """The garbage collector frees it with the last reference."""

    def _step(self, step: int, running: Sequence[Running]) -> None:
        """One more token for each sequence, in one pass."""
        layer = step % self._model.layers
        states = self._model(layer, [self._rows(each, layer, step) for each in running])
        drawn = draw(
            self._head(torch.stack([state_TH[-1] for state_TH in states])),
            self._head,
            [each.context.params for each in running],
            [each.context.fed + 1 + step for each in running],
        )
        for each, state_TH, id, confidence in zip(running, states, drawn.ids, drawn.confidences, strict=True):
            each.state_TH = state_TH
            each.ids.append(id)
            each.drafted.append(id)
            each.confidences.append(confidence)

    def _rows(self, running: Running, layer: int, step: int) -> Rows:
        """All open rows the first time, then one more: the last state, and the id that was drafted from it."""
        context = running.context
        if step < self._model.layers:
            return context.open_rows(layer, running.ids, running.state_TH, end=context.fed)
        return Rows(context.pasts[layer], context.fed - 1 + step, running.ids[-1:], running.state_TH[-1:])

    def _settle(self, context: MtpContext, first: int, ids: Sequence[int], state_TH: Tensor) -> None:
        """Make the rows of layers `first` .. that no draft can change; those before have made theirs."""
        for layer in range(first, self._model.layers):
            rows = context.open_rows(layer, ids, state_TH, end=context.fed - 1 - layer)
            if not rows.ids:
                break
            [state_TH] = self._model(layer, [rows])
        context.settle()
