"""One stream to a drafter process, from Welcome to its end. What the drafter knows of us lives and dies with it."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from tandem.v1.drafter_pb2 import DraftRequest, DraftResponse, Proposals, TurnSequence, Welcome
from tandem.v1.drafter_pb2 import Turn as TurnMessage

from services.target.link.contexts import Contexts
from services.target.link.turn import Turn
from services.target.sequence import Sequence
from services.wire.codec import MODES

BLOCK_POSITIONS = 16
"""What a turn may carry of a feed: the most that one round commits."""


class Stream:
    """Requests go out in order through `outgoing`; answers come in through `receive`.

    At most one turn is open, so a slow drafter never works through a queue of rounds that are over.
    """

    def __init__(
        self, welcome: Welcome, outgoing: asyncio.Queue[DraftRequest], vocab_size: int, dropped: Counter[str]
    ) -> None:
        self.drafters = {name: each for each in welcome.drafters if (name := MODES.name(each.mode))}
        self.contexts = Contexts()
        self.turn: Turn | None = None
        self._outgoing = outgoing
        self._vocab_size = vocab_size
        self._dropped = dropped
        self._turns = 0
        self._max_contexts = welcome.max_contexts
        self._sitting_out: set[int] = set()  # sequences for which the drafter had no room

    def sync(self, sequence: Sequence) -> bool:
        """Feed what one turn could not carry: a prompt, or what was committed while nobody drafted. False when the
        drafter holds no context for the sequence and none can be opened."""
        if sequence.id in self._sitting_out:
            return False
        if sequence.id not in self.contexts:
            modes = self._modes(sequence)
            if not modes or len(self.contexts) >= self._max_contexts:
                return False
            self._send(self.contexts.open(sequence, modes))
        if self.contexts.gap(sequence) > BLOCK_POSITIONS:
            self._send(self.contexts.feeds(sequence))
        return True

    def entry(self, sequence: Sequence, mode: str, max_draft_tokens: int) -> TurnSequence | None:
        """The question for one sequence, carrying the feed of its last commit; None when it has no context."""
        if not self.sync(sequence):
            return None
        return TurnSequence(
            sequence=sequence.id,
            epoch=self.contexts[sequence.id].epoch,
            frontier=sequence.frontier,
            anchor=sequence.ids[-1],
            mode=MODES.value(mode),
            max_draft_tokens=max_draft_tokens,
            feed=self.contexts.feed(sequence),
        )

    def begin(self, entries: list[TurnSequence], now: float, budget_s: float) -> Turn:
        """Send a turn. Its answer resolves `turn.answer`, however late."""
        self._turns += 1
        self.turn = Turn(self._turns, now, {entry.sequence: entry for entry in entries}, self._vocab_size)
        message = TurnMessage(turn=self.turn.number, sequences=entries)
        message.budget.FromNanoseconds(round(budget_s * 1e9))
        self._outgoing.put_nowait(DraftRequest(turn=message))
        return self.turn

    def receive(self, response: DraftResponse) -> Turn | None:
        """Take one response, and return the turn it answers. What fits no question is dropped and counted."""
        match response.WhichOneof("message"):
            case "proposals":
                return self._answer(response.proposals)
            case "ack":
                self.contexts.confirm(response.ack.sequence, response.ack.epoch, response.ack.fed)
            case "behind" if response.behind.no_room:
                self._sit_out(response.behind.sequence, response.behind.epoch)
            case "behind":
                self.contexts.behind(response.behind.sequence, response.behind.epoch, response.behind.fed)
            case _:
                self._dropped["unexpected"] += 1
        return None

    def _answer(self, proposals: Proposals) -> Turn | None:
        turn = self.turn
        if turn is None or proposals.turn != turn.number:
            self._dropped["stale"] += max(len(proposals.proposals), 1)
            return None
        self.turn = None
        for proposal in proposals.proposals:
            self.contexts.confirm(proposal.sequence, proposal.epoch, proposal.frontier)
        turn.resolve(turn.read(proposals, self._dropped))
        return turn

    def close(self, sequence: int) -> None:
        self._sitting_out.clear()  # there may be room now, so whoever sat out asks once more
        self._send(self.contexts.close(sequence))

    def _sit_out(self, sequence: int, epoch: int) -> None:
        """Other targets hold all contexts: feed nothing to one that is none."""
        if sequence in self.contexts and self.contexts[sequence].epoch == epoch:
            self._send(self.contexts.close(sequence))
            self._sitting_out.add(sequence)

    def end(self) -> None:
        """The stream broke: whoever waits for its drafts goes on without."""
        if self.turn is not None:
            self.turn.resolve({})

    def _modes(self, sequence: Sequence) -> tuple[str, ...]:
        """The drafters this request may use, of those that are here."""
        wanted = sequence.request.speculation.mode
        return tuple(mode for mode in self.drafters if wanted in ("auto", mode))

    def _send(self, requests: Iterator[DraftRequest]) -> None:
        for request in requests:
            self._outgoing.put_nowait(request)
