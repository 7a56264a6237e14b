"""What the drafter does around its arithmetic: which tap it reads, how it draws, what it keeps."""

import gc
import weakref

import pytest
import torch

from services.drafter.interface import Ask, Draft, Feed, Opening
from services.drafter.mtp import MtpDrafter
from services.engine.sampling.noise import gumbel
from services.wire.codec import TensorBytes
from tests.drafter import mtp_oracle as tiny
from tests.drafter.mtp_oracle import Fed, borrowed, build, tokens

POSITIONS = 30


@pytest.fixture(scope="module")
def oracle():
    return build("qwen3_5")


@pytest.fixture(scope="module")
def load(oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    tiny.write_target(folder, oracle)
    return lambda draws="argmax": MtpDrafter.load(folder, borrowed(folder), draws=draws)


@pytest.fixture(scope="module")
def drafter(load):
    return load()


def test_it_describes_what_it_needs_and_which_target_it_fits(drafter):
    found = drafter.description
    assert (found.mode, found.max_draft_tokens, found.default_draft_tokens) == ("mtp", 8, 3)
    assert (found.tap_layers, found.needs_final_hidden, found.gives_confidence) == ((), True, True)
    assert (found.target_hidden_size, found.target_vocab_size, found.context_length) == (64, 101, 512)
    assert len(found.target_fingerprint) == 64


@pytest.mark.parametrize("layers", [(), (1, 4)])
@pytest.mark.parametrize("positions", [POSITIONS, 100])
def test_the_final_state_is_found_behind_the_layers_of_others(drafter, oracle, positions, layers):
    plain = Fed(drafter, oracle, tokens(positions + 1)).feed(positions)
    opening = Opening(first_id=plain.ids[0], max_positions=200, tap_layers=layers, final_hidden=True)
    context = drafter.open(opening)
    others = torch.randn(positions, len(layers), 64, generator=torch.Generator().manual_seed(1))
    taps = torch.cat((others, plain.hidden_TH[:positions, None]), 1)
    data = bytearray(taps.numpy().tobytes())
    feed = Feed(0, plain.ids[1:], TensorBytes("fp32", tuple(taps.shape), memoryview(data)))
    drafter.absorb(context, feed)
    data[:] = bytes(len(data))  # a slot of shared memory, in which the next feed lies now
    assert drafter.draft([Ask(context, 4)]) == [plain.draft(4)]


def test_states_may_come_in_bf16(drafter, oracle):
    fed = Fed(drafter, oracle, tokens(POSITIONS + 1))
    fed.hidden_TH = fed.hidden_TH.bfloat16().float()
    context = drafter.open(Opening(first_id=fed.ids[0], max_positions=99, final_hidden=True))
    rows = fed.hidden_TH[:POSITIONS, None].bfloat16().contiguous()
    data = TensorBytes("bf16", tuple(rows.shape), rows.view(torch.int16).numpy().tobytes())
    drafter.absorb(context, Feed(0, fed.ids[1 : POSITIONS + 1], data))
    assert drafter.draft([Ask(context, 3)])[0].ids == tuple(fed.feed(POSITIONS).expected(3)[0])


def test_a_context_that_was_never_fed_has_no_draft(drafter, oracle):
    empty = drafter.open(Opening(first_id=5, max_positions=9, final_hidden=True))
    fed = Fed(drafter, oracle, tokens(POSITIONS + 1)).feed(POSITIONS)
    nothing, something = drafter.draft([Ask(empty, 3), Ask(fed.context, 3)])
    assert nothing == Draft()
    assert something.ids == fed.draft(3).ids
    assert drafter.draft([Ask(empty, 1)]) == [Draft()]


def test_coupled_draws_use_the_targets_noise_at_the_position_of_each_token(load, oracle):
    drafter = load("coupled")
    for seed, choice in ((3, 0), (-4, 2)):
        opening = {"seed": seed, "choice": choice, "temperature": 0.9}
        fed = Fed(drafter, oracle, tokens(POSITIONS + 1, seed=seed), **opening).feed(POSITIONS)
        drafted = fed.draft(5).ids
        rows = follow(fed, drafted)
        noise = gumbel(seed, choice, range(POSITIONS + 1, POSITIONS + 6), torch.arange(101, dtype=torch.int32))
        assert drafted == tuple((rows + 0.9 * noise).argmax(-1).tolist())


def test_independent_draws_follow_the_rows_but_not_the_targets_noise(load, oracle):
    coupled, own = load("coupled"), load("independent")
    pairs = []
    for seed in range(12):
        opening = {"seed": seed, "temperature": 2.0}
        feds = [Fed(each, oracle, tokens(POSITIONS + 1), **opening).feed(POSITIONS) for each in (coupled, own)]
        pairs.append([fed.draft(1).ids[0] for fed in feds])
    of_coupled, of_own = zip(*pairs, strict=True)
    assert len(set(of_own)) > 3, "at a high temperature draws differ"
    assert of_own != of_coupled


@pytest.mark.parametrize("draws", ["argmax", "independent", "coupled"])
def test_a_greedy_request_has_the_likeliest_tokens_drafted(load, oracle, draws):
    fed = Fed(load(draws), oracle, tokens(POSITIONS + 1), temperature=0.0, seed=1).feed(POSITIONS)
    assert list(fed.draft(4).ids) == fed.expected(4)[0]


def test_rows_of_the_head_that_no_tokenizer_knows_are_never_drafted(oracle, tmp_path):
    tiny.write_target(tmp_path, oracle)
    drafter = MtpDrafter.load(tmp_path, borrowed(tmp_path, vocab_size=60), draws="independent")
    drafted = set()
    for seed in range(40):
        fed = Fed(drafter, oracle, tokens(6, vocab_size=60), temperature=5.0, seed=seed).feed(5)
        drafted.update(fed.draft(8).ids)
    assert len(drafted) > 40
    assert max(drafted) < 60


def test_positions_beyond_the_trained_ones_are_still_computed(drafter, oracle):
    """A target may serve a longer context; nothing is asked for there, but it is fed."""
    fed = Fed(drafter, oracle, tokens(640)).feed(*range(100, 520, 100), 639)
    assert list(fed.draft(3).ids) == fed.expected(3)[0]


def test_a_closed_context_leaves_nothing_behind(drafter, oracle):
    fed = Fed(drafter, oracle, tokens(100)).feed(70, 90)
    fed.draft(3)
    past = weakref.ref(fed.context.hidden[0])
    drafter.close(fed.context)
    del fed
    gc.collect()
    assert past() is None


def test_nothing_of_a_sequence_reaches_the_next(drafter, oracle):
    """The same prompt before and after others came, drafted, were refused and went."""
    before = Fed(drafter, oracle, tokens(100)).feed(70, 99).draft(8)
    for seed in range(1, 4):
        other = Fed(drafter, oracle, tokens(120, seed)).feed(50 * seed % 119 + 1)
        other.draft(8)
        drafter.close(other.context)
    assert Fed(drafter, oracle, tokens(100)).feed(70, 99).draft(8) == before


def follow(fed, drafted):
    """The oracle's logits where `drafted` was drawn, whatever its own likeliest were [k, V]."""
    rows, hidden_TH = [], fed.hidden_TH[: fed.context.fed]
    known = fed.ids[: fed.context.fed + 1]
    for id in drafted:
        out_TH = fed.oracle.layer(0, hidden_TH, known[1:], range(1, len(known)))
        rows.append(fed.oracle.logits(out_TH[-1]))
        hidden_TH, known = torch.cat((hidden_TH, out_TH[-1:])), [*known, id]
    return torch.stack(rows)
