"""One step on the model's thread: forward, sample and match, cut, commit, retain. What it moves, it moves together.

A decoding sequence brings [anchor, drafts], a prefilling one a chunk of its prompt. Of a block of n rows whose verdict
keeps m tokens, m rows are committed: the anchor and the kept drafts but the last token, which becomes the new anchor.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from services.engine.batch import Block
from services.engine.cache.slots import Slot
from services.engine.sampling import Ask, Verdict, sample_and_match
from services.target.cut import Finish
from services.target.model import Model
from services.target.sequence import Sequence
from services.target.sink import Kept
from services.target.taps.needs import Needs
from services.target.taps.taps import Taps


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of one sequence: `ids` from its frontier on, of which the last `wanted` need logits."""

    sequence: Sequence
    ids: SequenceOf[int]
    wanted: int
    mode: str = "none"

    @property
    def draft(self) -> SequenceOf[int]:
        """What is verified; a prefill's only wanted row has nothing after it."""
        return self.ids[len(self.ids) - self.wanted + 1 :] if self.wanted else ()


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step kept of one sequence, and what it verified for that; nothing for the middle of a prefill."""

    sequence: Sequence
    kept: tuple[Kept, ...] = ()
    finish: Finish | None = None
    mode: str = "none"
    drafted: int = 0

    @property
    def decoded(self) -> bool:
        """It was a round, no part of a prefill."""
        return bool(self.kept) and self.kept[0].origin != "first"


def step(model: Model, taps: Taps, works: SequenceOf[Work]) -> list[Progress]:
    """Run one packed forward over all works, commit what the target keeps of each, and retain its taps for drafters
    that need them."""
    blocks = [Block(slot=_slot(work), ids=work.ids, wanted=work.wanted) for work in works]
    needs = _needs(works)
    forward = model.forward(blocks, taps=needs.layers, hidden=needs.hidden)
    asking = [work for work in works if work.wanted]
    verdicts = iter(sample_and_match(forward.logits_RV, [_ask(work) for work in asking]))
    done, first = [], 0
    for work in works:
        frontier = work.sequence.frontier
        done.append(_commit(work, next(verdicts)) if work.wanted else _absorb(work))
        if work.sequence.taps is not None:
            taps.write(work.sequence.taps, forward, first, work.sequence.frontier - frontier)
        first += len(work.ids)
    return done


def _needs(works: SequenceOf[Work]) -> Needs:
    """What any sequence retains: nothing is asked of the model that nobody needs."""
    needs = Needs()
    for work in works:
        if work.sequence.taps is not None and not work.sequence.taps.ended:
            needs |= work.sequence.taps.needs
    return needs


def _ask(work: Work) -> Ask:
    position = work.sequence.frontier + len(work.ids) - work.wanted + 1
    return Ask(work.sequence.rules, position, work.draft)


def _absorb(work: Work) -> Progress:
    _slot(work).commit(len(work.ids))
    return Progress(work.sequence)


def _commit(work: Work, verdict: Verdict) -> Progress:
    sequence, first = work.sequence, not work.sequence.prefilled
    count, finish = sequence.cutter.cut(verdict.tokens)
    tokens = verdict.tokens[:count]
    last = "first" if first else _last_origin(work, verdict)
    origins = ["accepted" if i < verdict.accepted else last for i in range(count)]
    for token in tokens:
        sequence.rules.advance(token)
    sequence.ids.extend(tokens)
    sequence.counters.record(work.mode, len(work.draft), origins)
    _slot(work).commit(len(work.ids) if first else count)
    logprobs = verdict.logprobs or (None,) * count
    kept = tuple(Kept(*each) for each in zip(tokens, origins, logprobs, strict=False))
    return Progress(sequence, kept, finish, work.mode, len(work.draft))


def _last_origin(work: Work, verdict: Verdict) -> str:
    if not work.draft:
        return "plain"
    return "bonus" if verdict.accepted == len(work.draft) else "correction"


def _slot(work: Work) -> Slot:
    slot = work.sequence.slot
    assert slot is not None, "only admitted sequences reach a step"
    return slot
