"""DFlash drafters behind one stream: both versions and n-grams, each with its own layers of what the feeds bring."""

import pytest
import torch

from services.drafter.dflash import DFlashDrafter
from services.drafter.drafting import Drafting
from services.drafter.interface import Feed, Opening
from services.drafter.messages import Hello, Open, Proposals, SequenceFeed
from services.drafter.ngram import NgramDrafter
from services.errors import InvalidRequest
from services.wire.codec import TensorBytes
from tests.drafter import dflash_oracle as tiny
from tests.drafter.conftest import Stream
from tests.drafter.dflash_oracle import HIDDEN, VOCAB, random_taps

pytestmark = pytest.mark.anyio

UNION = (0, 1, 3, 5, 6)
PROMPT = 530  # longer than what is absorbed between two turns


@pytest.fixture(scope="module")
def oracles():
    """The second lists its taps in another order, and both need some that the other does not."""
    first = tiny.tiny(1, special={"target_layer_ids": [1, 3, 6]}, windows=[9, None])
    second = tiny.tiny(2, special={"target_layer_ids": [5, 0, 6]}, windows=[9, None], is_causal=False)
    second.embedding_VH, second.head = first.embedding_VH, first.head
    return {"dflash": first, "dflash2": second}


@pytest.fixture(scope="module")
def drafters(oracles, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    target = tiny.borrow(tiny.write_target(root / "target", oracles["dflash"]))
    folders = {mode: tiny.write_drafter(root / mode, oracle) for mode, oracle in oracles.items()}
    models = [DFlashDrafter.load(mode, folder, target, draws="argmax") for mode, folder in folders.items()]
    return [NgramDrafter(), *models]


def hello(drafters):
    fingerprint = drafters[1].description.target_fingerprint
    return Hello(vocab_size=VOCAB, hidden_size=HIDDEN, weights_fingerprint=fingerprint, layers=8, dtype="fp32")


def feed_of(taps_PKH, ids, start, end):
    taps = taps_PKH[start:end].contiguous()
    return Feed(start, ids[start + 1 : end + 1], TensorBytes("fp32", tuple(taps.shape), taps.numpy().tobytes()))


async def test_a_prompt_in_pieces_and_then_rounds_in_either_mode(drafters, oracles):
    taps_PKH = random_taps(PROMPT + 60, taps=len(UNION))
    ids = torch.randint(VOCAB, (PROMPT + 61,), generator=torch.Generator().manual_seed(1)).tolist()
    with Drafting.of(drafters, max_contexts=4) as drafting:
        welcome, session = drafting.greet(hello(drafters))
        assert [each.mode for each in welcome.drafters] == ["ngram", "dflash", "dflash2"]
        stream = Stream(session)
        opening = Opening(first_id=ids[0], max_positions=1000)
        stream.send(Open(sequence=1, epoch=1, modes=("ngram", "dflash", "dflash2"), opening=opening))
        for start in range(0, PROMPT, 200):
            stream.send(SequenceFeed(1, 1, feed_of(taps_PKH, ids, start, min(start + 200, PROMPT))))
        end, turn = PROMPT, 0
        for kept, mode in [(1, "dflash"), (3, "dflash2"), (6, "dflash2"), (2, "dflash"), (6, "dflash2"), (5, "dflash")]:
            turn += 1
            stream.turn(turn, Stream.entry(1, end, ids[end], mode=mode, most=15))
            while (answer := (await stream.until(Proposals))[-1]).proposals == []:  # the prompt is not absorbed yet
                turn += 1
                stream.turn(turn, Stream.entry(1, end, ids[end], mode=mode, most=15))
            oracle = oracles[mode]
            own = [UNION.index(layer) for layer in oracle.special["target_layer_ids"]]
            expected = oracle.drafts(taps_PKH[:end, own], ids[end])[0]
            assert [list(proposal.draft.ids) for proposal in answer.proposals] == [expected]
            stream.send(SequenceFeed(1, 1, feed_of(taps_PKH, ids, end, end + kept)))
            end += kept
        stream.end()
        await stream.rest()


@pytest.mark.parametrize("modes", [("dflash",), ("dflash2",), ("dflash", "dflash2")], ids=str)
async def test_feeds_bring_exactly_the_layers_of_the_modes_that_were_opened(drafters, modes):
    needed = len(
        {layer for each in drafters if each.description.mode in modes for layer in each.description.tap_layers}
    )
    for taps in range(len(UNION) + 2):
        with Drafting.of(drafters, max_contexts=4) as drafting:
            stream = Stream(drafting.greet(hello(drafters))[1])
            stream.send(Open(sequence=1, epoch=1, modes=modes, opening=Opening(first_id=1, max_positions=99)))
            stream.send(SequenceFeed(1, 1, feed_of(random_taps(5, taps=taps), [1] * 6, 0, 5)))
            stream.end()
            if taps == needed:
                await stream.rest()
            else:
                with pytest.raises(InvalidRequest, match=f"{taps} taps; {needed} are needed"):
                    await stream.rest()


async def test_past_its_context_length_a_drafter_is_silent(drafters, oracles, tmp_path):
    """Positions it was not made for are never drafted at; feeds go on, and other drafters of the sequence too."""
    oracle = oracles["dflash"]
    target = tiny.borrow(tiny.write_target(tmp_path / "target", oracle))
    folder = tiny.write_drafter(tmp_path / "drafter", oracle, max_position_embeddings=20)
    short = DFlashDrafter.load("dflash", folder, target, draws="argmax")
    with Drafting.of([NgramDrafter(), short], max_contexts=4) as drafting:
        stream = Stream(drafting.greet(hello(drafters))[1])
        opening = Opening(first_id=1, max_positions=99)
        stream.send(Open(sequence=1, epoch=1, modes=("ngram", "dflash"), opening=opening))
        for turn, (start, end) in enumerate([(0, 19), (19, 20), (20, 21)]):
            stream.send(SequenceFeed(1, 1, feed_of(random_taps(40), [1] * 41, start, end)))
            stream.turn(2 * turn, Stream.entry(1, end, 1, mode="dflash", most=15))
            stream.turn(2 * turn + 1, Stream.entry(1, end, 1, mode="ngram", most=15))
        stream.end()
        answers = [each for each in await stream.rest() if isinstance(each, Proposals)]
        counts = [len(each.proposals[0].draft.ids) for each in answers]
        assert counts == [5, 15, 0, 15, 0, 15]
