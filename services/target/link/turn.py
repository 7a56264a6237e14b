"""One open question to the drafter, and which answers to it count.

A proposal is applied only to the very (sequence, epoch, frontier, anchor) it was asked for, in the turn it was asked
in. Ids are checked before anything uses one as an index.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tandem.v1.drafter_pb2 import Proposal, Proposals, TurnSequence


@dataclass(frozen=True, slots=True)
class Draft:
    """`confidences`: one for each id, 0..1, or none at all."""

    ids: tuple[int, ...]
    confidences: tuple[float, ...] = ()


Drafts = dict[int, Draft]


@dataclass(slots=True)
class Turn:
    """`answer` resolves to the drafts by sequence; to none when the stream ends first."""

    number: int
    sent_at: float
    asked: dict[int, TurnSequence]
    vocab_size: int
    answer: asyncio.Future[Drafts] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def read(self, proposals: Proposals, dropped: Counter[str]) -> Drafts:
        """Keep what fits what was asked; count the rest in `dropped` by reason."""
        drafts: Drafts = {}
        for proposal in proposals.proposals:
            asked = self.asked.get(proposal.sequence)
            if asked is None or not _answers(proposal, asked):
                dropped["stale"] += 1
                continue
            ids = proposal.ids[: asked.max_draft_tokens]
            draft = _valid(ids, self.vocab_size)
            dropped["overlong"] += len(proposal.ids) > len(ids)
            dropped["invalid_id"] += len(draft) < len(ids)
            confidences = _confidences(proposal)
            dropped["invalid_confidence"] += len(confidences) < len(proposal.confidences)
            if draft:
                drafts[proposal.sequence] = Draft(draft, confidences[: len(draft)])
        return drafts

    def resolve(self, drafts: Drafts) -> None:
        if not self.answer.done():
            self.answer.set_result(drafts)


def _answers(proposal: Proposal, asked: TurnSequence) -> bool:
    return (proposal.epoch, proposal.frontier, proposal.anchor) == (asked.epoch, asked.frontier, asked.anchor)


def _confidences(proposal: Proposal) -> tuple[float, ...]:
    """Within 0..1. None at all where they are not one for each draft, or one is no number: which of them still tell
    something cannot be known."""
    given = tuple(proposal.confidences)
    if len(given) != len(proposal.ids) or not math.isfinite(sum(given)):
        return ()
    return tuple(min(max(each, 0.0), 1.0) for each in given)


def _valid(ids: Sequence[int], vocab_size: int) -> tuple[int, ...]:
    """The leading ids that are in the vocabulary: what follows a wrong one could only be accepted by accident."""
    for index, id in enumerate(ids):
        if id >= vocab_size:
            return tuple(ids[:index])
    return tuple(ids)
