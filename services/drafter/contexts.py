"""The sequences of one stream: what each was fed, what waits to be absorbed, and the contexts that hold it.

      0 ............ fed ............ end
        in the contexts | waits here

The bookkeeping (`offer`, `take`) runs on the event loop; `make`, `absorb` and `free`, which touch contexts, run on the
compute thread, one job after another.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from services.drafter.interface import AnyDrafter, Feed
from services.drafter.messages import Open
from services.errors import InvalidRequest, Overloaded


class Capacity:
    """How many sequences may be open on all streams of the process together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self) -> bool:
        """False when there is no room."""
        room = self.taken < self.limit
        self.taken += room
        return room

    def give_back(self) -> None:
        self.taken -= 1


class FedSequence:
    """One epoch of one sequence: positions 0 .. fed - 1 were given to its contexts, up to `end` were received, and
    `last_id` has position `end`."""

    def __init__(self, request: Open, drafters: Mapping[str, AnyDrafter]) -> None:
        self.id, self.epoch = request.sequence, request.epoch
        self.drafters = drafters
        self.contexts: dict[str, Any] = {}
        self.fed = self.end = 0
        self.last_id = request.opening.first_id
        self.is_open = True
        self.leases = False  # it was fed from the tap ring
        needs = [drafter.description for drafter in drafters.values()]
        self._opening = replace(
            request.opening,
            tap_layers=tuple(sorted({layer for each in needs for layer in each.tap_layers})),
            final_hidden=any(each.needs_final_hidden for each in needs),
        )
        self._waiting: deque[Feed] = deque()

    def offer(self, feed: Feed, *, field: str) -> bool:
        """Let a feed wait. Positions known already are skipped; False when some before it are missing."""
        most, needed = self._opening.max_positions, self._opening.taps
        if feed.end > most:
            raise InvalidRequest(f"fed up to {feed.end} of {most} positions", field=f"{field}.ids")
        taps = 0 if feed.taps is None else feed.taps.shape[1]
        if needed and taps != needed:
            raise InvalidRequest(f"{taps} taps; {needed} are needed", field=f"{field}.taps")
        if feed.start > self.end:
            return False
        self.leases |= feed.taps is not None and feed.taps.lease is not None
        if feed.end > self.end:
            self._waiting.append(feed.split(self.end)[1])
            self.end, self.last_id = feed.end, feed.ids[-1]
        return True

    def take(self, end: int) -> list[Feed]:
        """What waits before position `end`, to be absorbed now."""
        taken = []
        while self.fed < end and self._waiting:
            feed = self._waiting.popleft()
            if feed.end > end:
                feed, rest = feed.split(end)
                self._waiting.appendleft(rest)
            taken.append(feed)
            self.fed = feed.end
        return taken

    def make(self) -> None:
        for mode, drafter in self.drafters.items():
            self.contexts[mode] = drafter.open(self._opening)

    def absorb(self, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            for mode, context in self.contexts.items():
                self.drafters[mode].absorb(context, feed)

    def free(self) -> None:
        """Idempotent."""
        contexts, self.contexts = self.contexts, {}
        for mode, context in contexts.items():
            self.drafters[mode].close(context)


class FedSequences:
    """The open sequences of one stream, and those that found no room."""

    def __init__(self, drafters: Mapping[str, AnyDrafter], capacity: Capacity) -> None:
        self._drafters = drafters
        self._capacity = capacity
        self._open: dict[int, FedSequence] = {}
        self._without: dict[int, int] = {}  # sequence -> epoch

    def check(self, request: Open) -> None:
        current = self._open.get(request.sequence)
        if request.epoch <= (current.epoch if current else self._without.get(request.sequence, 0)):
            raise InvalidRequest(f"epoch {request.epoch} has been", field="open.epoch")
        if not request.modes:
            raise InvalidRequest("a sequence is opened for at least one mode", field="open.modes")
        for mode in request.modes:
            if mode not in self._drafters:
                raise InvalidRequest(f"{mode} was not welcomed", field="open.modes")

    def open(self, request: Open) -> FedSequence | None:
        """A new sequence; None when other streams have taken all room. The request is checked, and an earlier epoch
        closed."""
        if len(self._open) + len(self._without) >= self._capacity.limit:
            raise Overloaded(f"{self._capacity.limit} sequences are open; no more fit")
        if not self._capacity.take():
            self._without[request.sequence] = request.epoch
            return None
        sequence = FedSequence(request, {mode: self._drafters[mode] for mode in request.modes})
        self._open[sequence.id] = sequence
        return sequence

    def find(self, id: int, epoch: int, *, field: str) -> FedSequence | None:
        """The open sequence; None when the message is of an epoch that is over, or of one that found no room."""
        if id in self._without and epoch <= self._without[id]:
            return None
        sequence = self._open.get(id)
        if sequence is None or epoch > sequence.epoch:
            raise InvalidRequest(f"sequence {id} is not open in epoch {epoch}", field=field)
        return sequence if epoch == sequence.epoch else None

    def close(self, id: int) -> FedSequence | None:
        """The sequence that was open; its contexts are to be freed."""
        self._without.pop(id, None)
        sequence = self._open.pop(id, None)
        if sequence is not None:
            sequence.is_open = False
            self._capacity.give_back()
        return sequence

    def close_all(self) -> list[FedSequence]:
        return [sequence for id in list(self._open) if (sequence := self.close(id))]
