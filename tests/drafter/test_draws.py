"""How draft tokens are drawn, held against the plain definition over the row that the reference gives."""

import pytest
import torch

from services.drafter.draw import draw, sampling
from services.drafter.interface import Opening
from services.drafter.models.head import Head
from services.engine.sampling import gumbel
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import VOCAB, ask, feed_in_pieces, opened, random_taps
from tests.sampling.chi_square import bound, statistic

DRAWS = ["argmax", "independent", "coupled"]
LENGTH, ANCHOR = 12, 17
SEEDS = range(40)


def head(ids=None, vocab_size=VOCAB):
    """A head whose logits are the hidden state itself."""
    return Head.of(torch.eye(len(ids) if ids else VOCAB), ids, vocab_size)


def drawn(rows_RD, draws, of=None, *, positions=None, **sampled):
    params = [sampling(Opening(first_id=0, max_positions=99, **sampled), draws)] * len(rows_RD)
    return draw(rows_RD, of or head(), params, positions or range(1, len(rows_RD) + 1)).ids


def rows(count, width=VOCAB, seed=4):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * 2


def targets(row_V, position, temperature, seed, choice=0):
    """What the target draws from a row: the likeliest under its noise."""
    noise_V = gumbel(seed, choice, [position], torch.arange(len(row_V), dtype=torch.int32))[0]
    return int((row_V.double() + temperature * noise_V.double()).argmax())


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("temperature", [0.0, 1e-4])
def test_a_temperature_that_the_target_takes_for_greedy_is_greedy_for_all(draws, temperature):
    rows_RD = rows(20)
    assert drawn(rows_RD, draws, temperature=temperature, seed=3) == rows_RD.argmax(1).tolist()


def test_argmax_is_deaf_to_the_temperature():
    rows_RD = rows(20)
    assert drawn(rows_RD, "argmax", temperature=5.0, seed=3) == rows_RD.argmax(1).tolist()


@pytest.mark.parametrize("choice", [0, 2])
@pytest.mark.parametrize("seed", [0, -5, 2**62])
def test_oracle_coupled_draws_are_the_targets_own_of_the_same_row(seed, choice):
    rows_RD, positions = rows(30), range(200, 230)
    expected = [targets(row_V, at, 0.9, seed, choice) for row_V, at in zip(rows_RD, positions, strict=True)]
    found = drawn(rows_RD, "coupled", positions=positions, temperature=0.9, seed=seed, choice=choice)
    assert found == expected


def test_independent_draws_have_other_noise_and_the_rows_own_law():
    row_V = rows(1, 6)
    same = [drawn(row_V, "independent", head(list(range(6))), temperature=1.0, seed=seed) for seed in range(3000)]
    noisy = [targets(row_V[0], 1, 1.0, seed) for seed in range(3000)]
    counts = torch.bincount(torch.tensor(same)[:, 0], minlength=6)
    expected = (row_V[0].softmax(0) * 3000).tolist()
    assert statistic(counts.tolist(), expected) < bound(5)
    # Independent of the target's draw: both agree as often as two draws of this law do.
    agree = sum(a == b for [a], b in zip(same, noisy, strict=True))
    share = float((row_V[0].softmax(0) ** 2).sum()) * 3000
    assert statistic([agree, 3000 - agree], [share, 3000 - share]) < bound(1)


@pytest.mark.parametrize("draws", DRAWS)
def test_of_equal_logits_the_lowest_target_id_is_taken(draws):
    ids = [70, 3, 50, 9, 20]  # rows of the head in any order
    assert drawn(torch.zeros(1, 5), draws, head(ids), temperature=0.0) == [3]


@pytest.mark.parametrize("draws", DRAWS)
def test_filters_of_the_request_hold_for_drafts(draws):
    rows_RD = rows(200)
    found = drawn(rows_RD, draws, temperature=3.0, top_k=2, seed=1)
    kept = rows_RD.topk(2).indices.tolist()
    assert all(id in pair for id, pair in zip(found, kept, strict=True))


def test_noise_goes_by_the_targets_id_not_by_the_place_in_a_short_head():
    """Of 101 ids the head has 15. Where the target's own draw is among them, coupled finds it."""
    rows_RV, ids = rows(400), list(range(5, 101, 7))
    expected = [targets(row_V, at, 1.0, 8) for at, row_V in enumerate(rows_RV, 1)]
    found = drawn(rows_RV[:, ids], "coupled", head(ids), temperature=1.0, seed=8)
    inside = [(a, b) for a, b in zip(found, expected, strict=True) if b in ids]
    assert len(inside) > 20
    assert all(a == b for a, b in inside)
    assert set(found) <= set(ids)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("ids", [None, list(range(0, VOCAB, 3))], ids=["all", "some"])
def test_rows_that_no_tokenizer_knows_are_never_drafted(draws, ids):
    """Padding has the largest logits here."""
    weight_DH = torch.eye(VOCAB) if ids is None else torch.eye(VOCAB)[ids]
    short = Head.of(weight_DH, ids, 60)
    hidden_TH = torch.zeros(50, VOCAB)
    hidden_TH[:, 60:] = 100.0
    logits_TD = short(hidden_TH)
    found = drawn(logits_TD, draws, short, temperature=5.0, seed=0)
    assert max(found) < 60
    if draws != "argmax":
        assert len(set(found)) > 5


# Through a whole drafter.


def proposals(drafter, seed, temperature=1.0, choice=0):
    context = opened(drafter, seed=seed, temperature=temperature, choice=choice)
    feed_in_pieces(drafter, context, random_taps(LENGTH), ANCHOR, [LENGTH])
    return ask(drafter, context)[0]


def test_oracle_coupled_drafts_are_drawn_at_their_own_positions(tmp_path):
    """The first draft is for the position behind the anchor's."""
    oracle = tiny.tiny(1)
    drafter = tiny.load(tmp_path, oracle, draws="coupled")
    logits_JV = oracle.drafts(random_taps(LENGTH), ANCHOR)[1]
    for seed in SEEDS:
        expected = [targets(row_V, LENGTH + 1 + row, 1.0, seed, 3) for row, row_V in enumerate(logits_JV)]
        assert list(proposals(drafter, seed, choice=3).ids) == expected


def walk(oracle, temperature, noise):
    """The selector's walk written out in fp64, over the reference's own weights. `noise(row, ids)`."""
    selector = oracle.model.candidate_selector
    hidden_JH = oracle.hidden(random_taps(LENGTH), ANCHOR)[1:]
    logits_JV = oracle.drafts(random_taps(LENGTH), ANCHOR)[1]
    before, ids, shares = ANCHOR, [], []
    with torch.no_grad():
        for row, (hidden_H, row_V) in enumerate(zip(hidden_JH, logits_JV, strict=True)):
            candidates = row_V.topk(selector.top_k).indices.sort().values
            weights = selector.predecessor_codebook.weight[before] * selector.hidden_projection(hidden_H)
            scores = row_V[candidates].double()
            scores += selector.successor_codebook.weight[candidates].double() @ weights.double()
            best = int((scores + temperature * noise(row, candidates)).argmax())
            before = int(candidates[best])
            ids.append(before)
            shares.append(float(scores.softmax(0)[best]))
    return ids, shares


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_oracle_the_walk_draws_under_the_targets_noise(tmp_path, temperature):
    oracle = tiny.tiny(2)
    drafter = tiny.load(tmp_path, oracle, draws="coupled")
    found = set()
    for seed in SEEDS:
        ids, shares = walk(
            oracle, temperature, lambda row, ids, seed=seed: gumbel(seed, 0, [LENGTH + 1 + row], ids.int())[0].double()
        )
        draft = proposals(drafter, seed, temperature)
        assert list(draft.ids) == ids
        assert draft.confidences == pytest.approx(shares, rel=1e-3, abs=1e-6)
        found.add(draft.ids)
    assert (len(found) > 1) == (temperature > 0)


def test_independent_walks_differ_from_coupled_ones(tmp_path):
    oracle = tiny.tiny(2)
    coupled, own = (tiny.load(tmp_path / draws, oracle, draws=draws) for draws in ("coupled", "independent"))
    assert [proposals(coupled, seed).ids for seed in SEEDS] != [proposals(own, seed).ids for seed in SEEDS]


@pytest.mark.parametrize("version", [1, 2])
def test_sequences_of_a_batch_keep_their_own_temperature_and_seed(tmp_path, version):
    drafter = tiny.load(tmp_path, tiny.tiny(version), draws="coupled")
    sampled = [{"temperature": t, "seed": seed} for seed in range(4) for t in (0.0, 0.6, 2.0)]
    contexts = []
    for each in sampled:
        contexts.append(opened(drafter, **each))
        feed_in_pieces(drafter, contexts[-1], random_taps(LENGTH), ANCHOR, [LENGTH])
    together = [draft.ids for draft in ask(drafter, *contexts)]
    assert together == [proposals(drafter, each["seed"], each["temperature"]).ids for each in sampled]


@pytest.mark.parametrize("version", [1, 2])
def test_a_draft_vocabulary_bounds_what_is_drafted(tmp_path, version):
    ids = [2, 3, 17, 40, 41, 66, 89]
    path = tmp_path / "ids.txt"
    path.write_text("\n".join(map(str, ids)))
    oracle = tiny.tiny(version)
    drafter = tiny.load(tmp_path, oracle, draws="coupled", draft_vocab=path)
    seen = {id for seed in SEEDS for id in proposals(drafter, seed).ids}
    assert seen <= set(ids)
    assert len(seen) > 3
    if version == 1:
        rows_JD = oracle.drafts(random_taps(LENGTH), ANCHOR)[1][:, ids]
        assert list(proposals(drafter, 0, 0.0).ids) == [ids[at] for at in rows_JD.argmax(1)]
