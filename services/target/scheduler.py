"""Who runs, and how much of each prompt goes beside the round.

Rows for prompt + max_tokens are reserved at admission, so a running sequence never fails for memory. First come, first
served: a request that fits may pass one that does not, but only so often, and then everyone waits for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.errors import Overloaded
from services.target.model import Model
from services.target.sequence import Sequence
from services.target.step import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`prefill_chunk` and `round_tokens` count rows: of one prompt, and of all prompts and blocks of a round."""

    max_sequences: int
    max_waiting: int
    prefill_chunk: int
    round_tokens: int
    max_passed_over: int = 16


@dataclass(slots=True)
class Scheduler:
    """The waiting and the running. Touched only on the event loop, between steps."""

    model: Model
    bounds: Bounds
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    rows: int = field(init=False)  # of the model's cache, free or not

    def __post_init__(self) -> None:
        self.rows = self.model.free_rows

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def submit(self, sequence: Sequence, *, again: bool = False) -> None:
        """Queue a sequence; raises Overloaded when the queue is full. One that comes `again` takes the place of its
        request's last, so it is let in, and new requests wait for it: there are never more than were let in as new."""
        if len(self.waiting) >= self.bounds.max_waiting and not again:
            raise Overloaded(f"{len(self.waiting)} requests are waiting, which is the limit; try again later")
        self.waiting.append(sequence)

    def sweep(self) -> list[Sequence]:
        """Take out whoever ended, free their rows, and return them."""
        gone = [sequence for sequence in (*self.waiting, *self.running) if sequence.ended]
        for sequence in gone:
            if sequence.slot is not None:
                self.model.close(sequence.slot)
        self.waiting = [sequence for sequence in self.waiting if not sequence.ended]
        self.running = [sequence for sequence in self.running if not sequence.ended]
        return gone

    def admit(self) -> None:
        """Start those that fit, in order of arrival."""
        blocked: list[Sequence] = []
        while self.waiting and len(self.running) < self.bounds.max_sequences:
            sequence = self.waiting.pop(0)
            if sequence.request.rows <= self.model.free_rows:
                sequence.slot = self.model.open(sequence.request.rows)
                self.running.append(sequence)
                for other in blocked:
                    other.passed_over += 1
                continue
            blocked.append(sequence)
            if sequence.passed_over >= self.bounds.max_passed_over:
                break
        self.waiting[:0] = blocked

    def decoding(self) -> list[Sequence]:
        return [sequence for sequence in self.running if sequence.prefilled]

    def prefills(self, decoded_rows: int) -> Iterator[Work]:
        """Prompt chunks that fit beside `decoded_rows`, oldest first; a chunk at least, so that prompts always move."""
        least = min(self.bounds.prefill_chunk, self.bounds.round_tokens)
        room = max(self.bounds.round_tokens - decoded_rows, least)
        for sequence in self.running:
            if sequence.prefilled or room <= 0:
                continue
            start, prompt = sequence.frontier, sequence.request.prompt
            chunk = prompt[start : start + min(self.bounds.prefill_chunk, room)]
            room -= len(chunk)
            yield Work(sequence, chunk, wanted=int(start + len(chunk) == len(prompt)))
