"""A drafter inside the real drafter program, which writes down the taps it is given."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from services.drafter.drafting import Drafting
from services.drafter.interface import Ask, Description, Draft, Feed, Opening
from services.drafter.servicer import DrafterServicer
from services.errors import Unavailable

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(eq=False)
class Recorded:
    """One context: the ids it knows, and the taps [K, H] of each position."""

    ids: list[int]
    taps: list[torch.Tensor] = field(default_factory=list)
    leased: list[bool] = field(default_factory=list)

    @property
    def fed(self) -> int:
        return len(self.ids) - 1


class RecordingDrafter:
    """`truth` maps a history to what follows; every second draft is wrong at its third token. `die_in`: the draft in
    which the stream ends. Absorbing waits for `go_on`, and `reading` is set when it waits."""

    def __init__(
        self, truth: Callable[[Sequence[int]], Sequence[int]] = lambda ids: (), *, mode: str = "mtp", **needs: object
    ) -> None:
        self.description = Description(
            mode=mode, name="recording", max_draft_tokens=15, default_draft_tokens=5, **needs
        )
        self.truth, self.die_in, self.drafts = truth, None, 0
        self.contexts: list[Recorded] = []
        self.reading, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def open(self, opening: Opening) -> Recorded:
        self.contexts.append(Recorded([opening.first_id]))
        return self.contexts[-1]

    def absorb(self, context: Recorded, feed: Feed) -> None:
        self.reading.set()
        assert self.go_on.wait(30)
        assert feed.start == context.fed
        context.ids.extend(feed.ids)
        if feed.taps is not None:
            data = torch.frombuffer(bytearray(feed.taps.data), dtype=DTYPES[feed.taps.dtype])
            context.taps.extend(data.view(feed.taps.shape))
            context.leased.extend([feed.taps.lease is not None] * len(feed.ids))

    def draft(self, asks: Sequence[Ask[Recorded]]) -> list[Draft]:
        self.drafts += 1
        if self.drafts == self.die_in:
            raise Unavailable("scripted death")
        return [Draft(self._draft(ask)) for ask in asks]

    def _draft(self, ask: Ask[Recorded]) -> tuple[int, ...]:
        draft = list(self.truth(ask.context.ids))[: ask.max_draft_tokens]
        if self.drafts % 2 == 0 and len(draft) > 2:
            draft[2] += 1
        return tuple(draft)

    def close(self, context: Recorded) -> None:
        pass


@contextmanager
def recording(*drafters: object, tap_folder: Path | None = None) -> Iterator[DrafterServicer]:
    with Drafting.of(drafters, max_contexts=8) as drafting:
        yield DrafterServicer(drafting, tap_folder)
