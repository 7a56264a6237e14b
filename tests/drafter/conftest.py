import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from services.drafter.drafting import Drafting
from services.drafter.interface import Description, Draft, Feed, Opening
from services.drafter.messages import Close, Hello, Open, SequenceFeed, Turn, TurnSequence
from services.errors import BadCheckpoint

HELLO = Hello(vocab_size=1000, hidden_size=4, weights_fingerprint="w", layers=8, dtype="bf16")


class ScriptedContext:
    def __init__(self, opening):
        self.ids = [opening.first_id]

    @property
    def fed(self):
        return len(self.ids) - 1


class ScriptedDrafter:
    """Drafts the ids it knows, backwards, so that a test sees what reached it. `held`: absorbing waits for the test."""

    def __init__(self, mode="ngram"):
        self.description = Description(mode=mode, name=mode, max_draft_tokens=4, default_draft_tokens=2)
        self.calls = []
        self.open_contexts = 0
        self.threads = set()
        self.absorbing, self.go_on, self.freed = threading.Event(), threading.Event(), threading.Event()
        self.go_on.set()

    def open(self, opening):
        self.threads.add(threading.get_ident())
        self.open_contexts += 1
        return ScriptedContext(opening)

    def absorb(self, context, feed):
        self.threads.add(threading.get_ident())
        self.absorbing.set()
        self.go_on.wait()
        assert feed.start == context.fed
        context.ids.extend(feed.ids)
        self.calls.append(("absorb", context.ids[0], context.fed))

    def draft(self, asks):
        self.threads.add(threading.get_ident())
        self.calls.append(("draft", *(ask.context.ids[0] for ask in asks)))
        return [Draft(tuple(reversed(ask.context.ids))[: ask.max_draft_tokens]) for ask in asks]

    def close(self, context):
        self.open_contexts -= 1
        self.freed.set()


class Stream:
    """The target's end of a session, without a socket."""

    def __init__(self, session):
        self.session = session
        self._requests = asyncio.Queue()
        self.responses = session.run(self._sent())

    async def _sent(self):
        while (request := await self._requests.get()) is not None:
            yield request
            self._requests.task_done()  # the session has asked for the next: this one was taken in

    def send(self, request):
        self._requests.put_nowait(request)

    def open(self, id, *, epoch=1, first_id=None, modes=("ngram",), max_positions=100_000):
        opening = Opening(first_id=id if first_id is None else first_id, max_positions=max_positions)
        self.send(Open(sequence=id, epoch=epoch, modes=modes, opening=opening))

    def feed(self, id, start, ids, *, epoch=1):
        self.send(SequenceFeed(id, epoch, Feed(start, ids)))

    def turn(self, number, *entries, **budget):
        self.send(Turn(number, entries, **budget))

    def close(self, id):
        self.send(Close(id))

    @staticmethod
    def entry(id, frontier, anchor, *, feed=None, epoch=1, mode="ngram", most=4):
        return TurnSequence(
            sequence=id, epoch=epoch, frontier=frontier, anchor=anchor, mode=mode, max_draft_tokens=most, feed=feed
        )

    async def taken_in(self):
        await self._requests.join()

    def end(self):
        self._requests.put_nowait(None)

    async def receive(self, count=1):
        return [await anext(self.responses) for _ in range(count)]

    async def until(self, kind):
        """The next response of a kind, which is the last of those returned."""
        seen = []
        while not seen or not isinstance(seen[-1], kind):
            seen += await self.receive()
        return seen

    async def rest(self):
        return [response async for response in self.responses]


@pytest.fixture
def drafter():
    return ScriptedDrafter()


@pytest.fixture
def streaming():
    """Streams of one process; each is ended, and the compute thread with them."""

    @asynccontextmanager
    async def start(*drafters, streams=1, max_contexts=1000):
        with Drafting.of(drafters, max_contexts=max_contexts) as drafting:
            opened = [Stream(drafting.greet(HELLO)[1]) for _ in range(streams)]
            try:
                yield (drafting, *opened)
            finally:
                for stream in opened:
                    await stream.responses.aclose()

    return start


@pytest.fixture
def target(tmp_path):
    """What drafters borrow of a small random target."""
    from tests.drafter import dflash_oracle

    return dflash_oracle.borrow(dflash_oracle.write_target(tmp_path / "target", dflash_oracle.tiny(1)))


@pytest.fixture
def refused(tmp_path, target):
    """Loading the folder fails, and what it says names the folder, the mode and `words`."""
    from services.drafter.dflash import DFlashDrafter

    def check(*words, mode="dflash"):
        with pytest.raises(BadCheckpoint) as refusal:
            DFlashDrafter.load(mode, tmp_path / "drafter", target, draws="argmax")
        for word in (f"drafter.{mode}", str(tmp_path / "drafter"), *words):
            assert str(word) in str(refusal.value)

    return check
