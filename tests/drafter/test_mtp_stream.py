"""A multi-token-prediction module behind a stream: what the feeds bring is what it drafts from."""

import pytest

from services.drafter.drafting import Drafting
from services.drafter.interface import Feed, Opening
from services.drafter.messages import Hello, Open, Proposals, SequenceFeed
from services.drafter.mtp import MtpDrafter
from services.drafter.ngram import NgramDrafter
from services.errors import InvalidRequest
from services.wire.codec import TensorBytes
from tests.drafter import mtp_oracle as tiny
from tests.drafter.conftest import Stream
from tests.drafter.mtp_oracle import borrowed, build, tokens

pytestmark = pytest.mark.anyio

PROMPT = 530  # longer than what is absorbed between two turns
OTHERS = NgramDrafter()


@pytest.fixture(scope="module")
def oracle():
    return build("qwen3_next", max_position_embeddings=2048)


@pytest.fixture(scope="module")
def drafter(oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    tiny.write_target(folder, oracle)
    return MtpDrafter.load(folder, borrowed(folder), draws="argmax")


def hello(drafter, **changed):
    fits = {"hidden_size": 64, "vocab_size": 101, "weights_fingerprint": drafter.description.target_fingerprint}
    return Hello(**fits | {"layers": 8, "dtype": "fp32"} | changed)


async def test_a_prompt_in_pieces_and_then_rounds_are_drafted_for_as_the_oracle_would(drafter, oracle):
    ids = tokens(PROMPT + 40)
    hidden_TH = oracle.hidden(ids)

    def fed(start, end):
        taps = hidden_TH[start:end, None].contiguous()
        return Feed(start, ids[start + 1 : end + 1], TensorBytes("fp32", tuple(taps.shape), taps.numpy().tobytes()))

    with Drafting.of([OTHERS, drafter], max_contexts=4) as drafting:
        welcome, session = drafting.greet(hello(drafter))
        assert [each.mode for each in welcome.drafters] == ["ngram", "mtp"]
        stream = Stream(session)
        opening = Opening(first_id=ids[0], max_positions=1000)
        stream.send(Open(sequence=1, epoch=1, modes=("mtp", "ngram"), opening=opening))
        for start in range(0, PROMPT, 200):
            stream.send(SequenceFeed(1, 1, fed(start, min(start + 200, PROMPT))))
        end, turn = PROMPT, 0
        for kept in (1, 3, 2, 6, 1):
            turn += 1
            stream.turn(turn, Stream.entry(1, end, ids[end], mode="mtp"))
            while (answer := (await stream.until(Proposals))[-1]).proposals == []:  # the prompt is not absorbed yet
                turn += 1
                stream.turn(turn, Stream.entry(1, end, ids[end], mode="mtp"))
            [proposal] = answer.proposals
            assert list(proposal.draft.ids) == oracle.draft(ids[: end + 1], hidden_TH[:end], 4)[0]
            stream.send(SequenceFeed(1, 1, fed(end, end + kept)))
            end += kept
        stream.end()
        await stream.rest()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"weights_fingerprint": "f" * 64}, "weights fingerprint"),
        ({"hidden_size": 128}, "hidden size 64, not 128"),
        ({"vocab_size": 102}, "vocabulary 101, not 102"),
    ],
)
async def test_another_target_is_refused_with_the_reason(drafter, other, reason):
    with Drafting.of([OTHERS, drafter], max_contexts=4) as drafting:
        welcome, _ = drafting.greet(hello(drafter, **other))
    assert [each.mode for each in welcome.drafters] == ["ngram"]
    [refusal] = welcome.refusals
    assert refusal.mode == "mtp"
    assert reason in refusal.reason


async def test_feeds_without_states_are_refused(drafter):
    with Drafting.of([drafter], max_contexts=4) as drafting:
        stream = Stream(drafting.greet(hello(drafter))[1])
        stream.open(1, modes=("mtp",))
        stream.feed(1, 0, [4, 5])
        with pytest.raises(InvalidRequest, match="0 taps; 1 are needed"):
            await stream.rest()
