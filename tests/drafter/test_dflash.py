"""What a DFlash drafter does around its arithmetic: batches, feeds, cuts, memory."""

import pytest
import torch

from services.drafter.drafting import misfit
from services.drafter.interface import Ask, Feed, Opening
from services.drafter.messages import Hello
from services.errors import InvalidRequest
from services.wire.codec import TensorBytes
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import HIDDEN, VOCAB, ask, feed, feed_in_pieces, opened, random_taps

WINDOWS = [9, 9, None]


@pytest.fixture(params=[1, 2])
def oracle(request):
    return tiny.tiny(request.param, windows=WINDOWS)


@pytest.fixture
def drafter(tmp_path, oracle):
    return tiny.load(tmp_path, oracle)


@pytest.fixture
def fed(drafter):
    """A context of so many positions, whose taps depend on its number."""

    def make(number, length, drafter=drafter, **sampling):
        context = opened(drafter, first_id=number, **sampling)
        if length:
            feed_in_pieces(drafter, context, random_taps(length, seed=number), 10 + number, [length])
        return context

    return make


LENGTHS = [1, 30, 0, 8, 64, 9, 100, 3]


def test_a_batch_is_what_its_sequences_are_alone(drafter, fed):
    alone = [ask(drafter, fed(number, length))[0] for number, length in enumerate(LENGTHS)]
    together = ask(drafter, *(fed(number, length) for number, length in enumerate(LENGTHS)))
    assert [draft.ids for draft in together] == [draft.ids for draft in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.confidences == pytest.approx(other.confidences, rel=1e-3)
    assert len({draft.ids for draft in alone}) == len(alone), "else it is no test"


def test_sequences_go_on_side_by_side_round_after_round(drafter, oracle):
    """Five of different lengths, fed differently in each round, of which some sit out now and then."""
    taps_PKH = {number: random_taps(140, seed=number) for number in range(5)}
    contexts = {number: opened(drafter) for number in taps_PKH}
    for turn in range(6):
        for number, context in contexts.items():
            kept = (20 * number, 1, 6, 3, 2, 5)[turn] or 2
            end = context.fed + kept
            feed(drafter, context, taps_PKH[number][context.fed : end], [(7 * end) % 90] * kept)
        asked = [number for number in contexts if (number + turn) % 4]
        drafts = ask(drafter, *(contexts[number] for number in asked))
        for number, draft in zip(asked, drafts, strict=True):
            end = contexts[number].fed
            assert list(draft.ids) == oracle.drafts(taps_PKH[number][:end], (7 * end) % 90)[0]


@pytest.mark.parametrize("mixed", [True, False])
def test_fewer_drafts_are_the_first_of_the_whole_block(drafter, oracle, fed, mixed):
    """The block keeps the size it was trained with: with fewer masks its rows would be others."""
    whole = ask(drafter, fed(1, 30))[0]
    asks = [Ask(fed(1, 30), count) for count in range(1, oracle.block_size)]
    drafts = drafter.draft(asks) if mixed else [drafter.draft([each])[0] for each in asks]
    for count, draft in enumerate(drafts, 1):
        assert draft.ids == whole.ids[:count]
        assert draft.confidences == pytest.approx(whole.confidences[:count], rel=1e-3)
        assert all(0 < confidence <= 1 for confidence in draft.confidences)


def test_a_draft_leaves_no_trace_in_its_context(drafter, fed):
    """Masks, and drafts that were rejected, never get into what later drafts look at."""
    once, often = fed(1, 30), fed(1, 30)
    for _ in range(3):
        ask(drafter, often, count=2)
    for context in (once, often):
        feed(drafter, context, random_taps(2, seed=50), [7, 8])
    assert ask(drafter, once) == ask(drafter, often)


def test_memory_that_was_never_written_is_never_read(drafter, oracle, monkeypatch):
    """New buffers are full of NaN here."""
    empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *args: empty(*args).fill_(torch.nan))
    context = opened(drafter)
    taps_PKH = random_taps(90)
    for start, end in [(0, 3), (3, 70), (70, 71), (71, 90)]:
        feed(drafter, context, taps_PKH[start:end], [17] * (end - start))
        assert list(ask(drafter, context)[0].ids) == oracle.drafts(taps_PKH[:end], 17)[0]


def test_a_closed_context_leaves_no_trace_in_the_next(drafter, fed):
    fresh = ask(drafter, fed(2, 5))
    old = fed(1, 90)
    ask(drafter, old)
    drafter.close(old)
    assert ask(drafter, fed(2, 5)) == fresh


def test_only_committed_positions_are_absorbed_and_the_anchor_is_the_last_id(drafter, oracle):
    """A feed of five positions: four ids before the anchor play no part, their taps do."""
    taps_PKH = random_taps(5)
    drafts = []
    for ids in ([1, 2, 3, 4, 50], [60, 61, 62, 63, 50], [1, 2, 3, 4, 51]):
        context = opened(drafter)
        feed(drafter, context, taps_PKH, ids)
        assert context.fed == 5
        drafts.append(list(ask(drafter, context)[0].ids))
    assert drafts[0] == drafts[1] == oracle.drafts(taps_PKH, 50)[0]
    assert drafts[2] == oracle.drafts(taps_PKH, 51)[0]


def test_its_own_layers_are_found_among_those_of_others(drafter, oracle):
    """Another drafter of the sequence needs layers 0, 2, 6 and the final state; each position brings them all."""
    context = drafter.open(Opening(first_id=0, max_positions=99, tap_layers=(0, 1, 2, 3, 6), final_hidden=True))
    taps_PKH = random_taps(12, taps=6)
    feed(drafter, context, taps_PKH, [1] * 11 + [17])
    assert list(ask(drafter, context)[0].ids) == oracle.drafts(taps_PKH[:, [1, 3, 4]], 17)[0]


@pytest.mark.parametrize("length", [5, 64, 200])
@pytest.mark.parametrize("readonly", [True, False])
def test_bytes_of_a_feed_may_change_after_absorb(drafter, oracle, length, readonly):
    """They may lie in memory that the target uses again."""
    taps_PKH = random_taps(length)
    memory = bytearray(taps_PKH.numpy().tobytes())
    view = memoryview(memory).toreadonly() if readonly else memoryview(memory)
    context = opened(drafter)
    drafter.absorb(context, Feed(0, [1] * (length - 1) + [17], TensorBytes("fp32", (length, 3, HIDDEN), view)))
    memory[:] = b"\xff" * len(memory)  # NaN
    assert list(ask(drafter, context)[0].ids) == oracle.drafts(taps_PKH, 17)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_taps_come_in_the_targets_dtype(tmp_path, oracle, dtype):
    drafter = tiny.load(tmp_path, oracle)
    taps_PKH = random_taps(20).bfloat16()
    context = opened(drafter)
    feed(drafter, context, taps_PKH.to(dtype), [1] * 19 + [17])
    assert list(ask(drafter, context)[0].ids) == oracle.drafts(taps_PKH.float(), 17)[0]


def test_waiting_taps_are_bounded_however_long_nobody_asks(drafter):
    context = opened(drafter)
    for start in range(300):
        feed(drafter, context, random_taps(1, seed=start), [start % 90])
        assert sum(map(len, context.waiting)) < 128


def test_a_feed_without_taps_is_refused(drafter):
    with pytest.raises(InvalidRequest, match="taps are needed"):
        drafter.absorb(opened(drafter), Feed(0, [1, 2]))


@pytest.mark.parametrize("id", [-1, VOCAB, 2**31 - 1])
def test_an_anchor_that_is_no_id_is_never_an_index(drafter, id):
    context = opened(drafter)
    feed(drafter, context, random_taps(1), [id])
    with pytest.raises(InvalidRequest, match=f"anchor {id} is not an id from 0 to {VOCAB - 1}"):
        ask(drafter, context)


def test_the_description_says_which_target_it_fits(drafter, oracle):
    described = drafter.description
    assert described.mode == f"dflash{'2' * (oracle.version == 2)}"
    assert described.max_draft_tokens == described.default_draft_tokens == oracle.block_size - 1
    assert described.tap_layers == (1, 3, 6)
    assert described.context_length == tiny.BODY["max_position_embeddings"]
    assert described.gives_confidence
    assert not described.needs_final_hidden
    fitting = {
        "layers": 7,
        "dtype": "fp32",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "weights_fingerprint": described.target_fingerprint,
    }
    assert misfit(described, Hello(**fitting)) is None
    for key, value in (("vocab_size", 102), ("hidden_size", 65), ("weights_fingerprint", "other")):
        assert str(value) in misfit(described, Hello(**fitting | {key: value}))


def test_a_context_length_is_absent_where_the_config_does_not_limit_positions(tmp_path):
    oracle = tiny.tiny(1)
    target = tiny.borrow(tiny.write_target(tmp_path / "target", oracle))
    folder = tiny.write_drafter(tmp_path / "drafter", oracle, max_position_embeddings=None)
    assert tiny.DFlashDrafter.load("dflash", folder, target, draws="argmax").description.context_length is None
