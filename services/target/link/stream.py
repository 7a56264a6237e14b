"""One stream to a drafter process, from Welcome to its end. What the drafter knows of us lives and dies with it."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping

from tandem.v1.drafter_pb2 import DraftRequest, DraftResponse, Feed, Proposals, TurnSequence, Welcome
from tandem.v1.drafter_pb2 import Turn as TurnMessage

from services.target.link.contexts import Contexts
from services.target.link.tapped import lacking
from services.target.link.turn import Turn
from services.target.sequence import Sequence
from services.target.taps.needs import Needs
from services.target.taps.taps import Taps
from services.wire.codec import MODES

BLOCK_POSITIONS = 16
"""What a turn may carry of a feed: the most that one round commits."""

PROMPT_POSITIONS = 128
"""What is not worth a feed while a prompt is read: every message wakes a drafter that may share our processors."""

TURN_BYTES = 1 << 20
"""Taps that a turn carries itself; the feeds of further sequences go before it, each in a message of its own."""


class Stream:
    """Requests go out in order through `outgoing`; answers come in through `receive`.

    At most one turn is open, so a slow drafter never works through a queue of rounds that are over.
    """

    def __init__(
        self,
        welcome: Welcome,
        outgoing: asyncio.Queue[DraftRequest],
        vocab_size: int,
        dropped: Counter[str],
        taps: Taps,
    ) -> None:
        self.drafters = {name: each for each in welcome.drafters if (name := MODES.name(each.mode))}
        self.contexts = Contexts(taps, ring=welcome.ring_mapped)
        self.turn: Turn | None = None
        self._needs = {mode: Needs.of([each]) for mode, each in self.drafters.items()}
        self._outgoing = outgoing
        self._vocab_size = vocab_size
        self._dropped = dropped
        self._turns = 0
        self._max_contexts = welcome.max_contexts
        self._sitting_out: set[int] = set()  # sequences for which the drafter had no room

    def sync(self, sequence: Sequence) -> bool:
        """Feed what one turn could not carry: a prompt, or what was committed while nobody drafted. False when the
        drafter holds no context for the sequence and none can be opened."""
        if sequence.id in self._sitting_out or not self._opened(sequence):
            return False
        if self.contexts.gap(sequence) > (BLOCK_POSITIONS if sequence.prefilled else PROMPT_POSITIONS):
            self._feed(self.contexts.feeds(sequence))
        return True

    def _opened(self, sequence: Sequence) -> bool:
        """Open a sequence that is not open, and start over one whose taps are gone, for the drafters that need none."""
        known = sequence.id in self.contexts
        if known and not self.contexts.starved(sequence.id):
            return True
        modes = self._modes(sequence)
        if not modes:
            self.close(sequence.id)
            return False
        if not known and len(self.contexts) >= self._max_contexts:
            return False
        self._send(self.contexts.open(sequence, modes, Needs.of(self.drafters[mode] for mode in modes)))
        return True

    def hindrances(self, sequence: Sequence) -> Mapping[str, str]:
        """Why drafters cannot draft for a sequence just now, by mode: reasons of the report."""
        lack = {mode: why for mode, needs in self._needs.items() if (why := lacking(sequence.taps, needs))}
        lack |= dict.fromkeys(sequence.left_out & self.drafters.keys(), "gate")
        if self.contexts.catching_up(sequence.id):
            return dict.fromkeys(self.drafters, "catching_up") | lack
        return lack

    def entry(self, sequence: Sequence, mode: str, max_draft_tokens: int) -> TurnSequence | None:
        """The question for one sequence, carrying the feed of its last commit; None when it has no context for the
        mode, or one that cannot be brought up to the frontier now."""
        if not self.sync(sequence) or mode not in self.contexts[sequence.id].modes:
            return None
        feeds = list(self.contexts.feeds(sequence))
        if self.contexts.gap(sequence):
            self._feed(iter(feeds))
            return None
        self._feed(iter(feeds[:-1]))  # the commit reaches over the end of a page
        return TurnSequence(
            sequence=sequence.id,
            epoch=self.contexts[sequence.id].epoch,
            frontier=sequence.frontier,
            anchor=sequence.ids[-1],
            mode=MODES.value(mode),
            max_draft_tokens=max_draft_tokens,
            feed=feeds[-1] if feeds else None,
        )

    def begin(self, entries: list[TurnSequence], now: float, budget_s: float) -> Turn:
        """Send a turn. Its answer resolves `turn.answer`, however late."""
        self._turns += 1
        self.turn = Turn(self._turns, now, {entry.sequence: entry for entry in entries}, self._vocab_size)
        inline = 0
        for entry in entries:
            inline += len(entry.feed.taps.inline)
            if inline > TURN_BYTES and entry.HasField("feed"):
                self._outgoing.put_nowait(DraftRequest(feed=entry.feed))
                entry.ClearField("feed")
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
            case "released":
                self.contexts.released(response.released.sequence, response.released.epoch)
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
            self._send(self.contexts.refused(sequence))
            self._sitting_out.add(sequence)

    def end(self) -> None:
        """The stream broke: whoever waits for its drafts goes on without."""
        if self.turn is not None:
            self.turn.resolve({})
        self.contexts.end()

    def _modes(self, sequence: Sequence) -> tuple[str, ...]:
        """The drafters this request may use, of those that are here and can be fed."""
        speculation = sequence.request.speculation
        return tuple(
            mode
            for mode, needs in self._needs.items()
            if speculation.may_use(mode) and mode not in sequence.left_out and lacking(sequence.taps, needs) is None
        )

    def _feed(self, feeds: Iterator[Feed]) -> None:
        self._send(DraftRequest(feed=feed) for feed in feeds)

    def _send(self, requests: Iterator[DraftRequest]) -> None:
        for request in requests:
            self._outgoing.put_nowait(request)
