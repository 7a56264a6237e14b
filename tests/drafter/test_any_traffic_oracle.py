"""Whatever a target sends in order, every turn is answered once, and each draft is what the whole history gives."""

from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.drafter.drafting import Drafting
from services.drafter.interface import Ask, Feed, Opening
from services.drafter.messages import Behind, Close, Hello, Open, Proposals, SequenceFeed, Turn, TurnSequence
from services.drafter.ngram import NgramDrafter

SEQUENCES = 3
COMMITS = st.lists(st.integers(0, 2), min_size=1, max_size=5) | st.integers(500, 1100).map(lambda n: [1] * n)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["start", "close"]), st.integers(0, SEQUENCES - 1)),
    st.tuples(st.sampled_from(["commit and feed", "commit"]), st.integers(0, SEQUENCES - 1), COMMITS),
    st.tuples(st.just("ask"), st.sets(st.integers(0, SEQUENCES - 1), min_size=1)),
)


class Target:
    """Keeps what a target keeps, and writes down what it sends."""

    def __init__(self):
        self.requests, self.asked = [], []
        self.ids, self.sent, self.epochs = {}, {}, dict.fromkeys(range(SEQUENCES), 0)

    def start(self, id):
        self.epochs[id] += 1
        self.ids[id], self.sent[id] = [id], 0
        opening = Opening(first_id=id, max_positions=100_000)
        self.requests.append(Open(sequence=id, epoch=self.epochs[id], modes=("ngram",), opening=opening))

    def close(self, id):
        self.ids.pop(id, None)
        self.requests.append(Close(id))

    def commit(self, id, fresh):
        if id in self.ids:
            self.ids[id] += fresh

    def feed(self, id):
        start, self.sent[id] = self.sent[id], len(self.ids[id]) - 1
        return Feed(start, self.ids[id][start + 1 :])

    def ask(self, wanted):
        entries = []
        for id in sorted(wanted & self.ids.keys()):
            ids = self.ids[id]
            entries.append(
                TurnSequence(
                    sequence=id,
                    epoch=self.epochs[id],
                    frontier=len(ids) - 1,
                    anchor=ids[-1],
                    mode="ngram",
                    max_draft_tokens=5,
                    feed=self.feed(id),
                )
            )
        self.asked.append({entry.sequence: list(self.ids[entry.sequence]) for entry in entries})
        self.requests.append(Turn(len(self.asked) - 1, entries))

    def play(self, steps):
        for what, *rest in steps:
            match what, *rest:
                case "start", id:
                    self.start(id)
                case "close", id:
                    self.close(id)
                case "ask", wanted:
                    self.ask(wanted)
                case "commit", id, fresh:
                    self.commit(id, fresh)
                case "commit and feed", id, fresh:
                    self.commit(id, fresh)
                    if id in self.ids:
                        self.requests.append(SequenceFeed(id, self.epochs[id], self.feed(id)))


def expected(ids):
    drafter = NgramDrafter()
    context = drafter.open(Opening(first_id=ids[0], max_positions=len(ids)))
    drafter.absorb(context, Feed(0, ids[1:]))
    return drafter.draft([Ask(context, 5)])[0]


@pytest.mark.anyio
@settings(deadline=None)
@given(st.lists(STEPS, max_size=25))
async def test_oracle_every_turn_is_answered_once_with_what_the_whole_history_gives(steps):
    target = Target()
    target.play(steps)

    async def requests():
        for request in target.requests:
            yield request

    with Drafting.of([NgramDrafter()], max_contexts=SEQUENCES) as drafting:
        hello = Hello(vocab_size=1000, hidden_size=4, weights_fingerprint="w")
        async with aclosing(drafting.greet(hello)[1].run(requests())) as responses:
            answers = [answer async for answer in responses]
        assert drafting.capacity.taken == 0
    proposals = [answer for answer in answers if isinstance(answer, Proposals)]
    assert [answer.turn for answer in proposals] == list(range(len(target.asked)))
    behind = {answer.sequence for answer in answers if isinstance(answer, Behind)}
    closed = {request.sequence for request in target.requests if isinstance(request, Open | Close)}
    for answer, asked in zip(proposals, target.asked, strict=True):
        for each in answer.proposals:
            ids = asked[each.sequence]
            assert (each.frontier, each.anchor, each.draft) == (len(ids) - 1, ids[-1], expected(ids))
        missing = asked.keys() - {each.sequence for each in answer.proposals}
        assert missing <= behind | closed
