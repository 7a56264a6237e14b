"""Losses against plain arithmetic, row by row."""

import math

import pytest
import torch
from torch.nn.functional import log_softmax

from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.training import recipes
from services.training.answer import Answer
from services.training.batch import Batch, Batches, anchors, generator
from services.training.evaluate import Sample
from services.training.frozen import Frozen, most_frequent
from services.training.losses import DFlashLoss, MtpLoss
from tests.drafter.dflash_oracle import noise

VOCABULARY, HIDDEN = 101, 64


def sample(prompt, answer, taps, seed):
    dice = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (prompt + answer,), generator=dice).tolist()
    return Sample(
        Answer(ids[:prompt], ids[prompt:], 0.0), torch.randn(prompt + answer - 1, taps, HIDDEN, generator=dice)
    )


def batch(taps):
    return Batch.of([sample(4, 9, taps, 1), sample(2, 15, taps, 2), sample(6, 3, taps, 3)])


@pytest.fixture(params=[None, list(range(0, VOCABULARY, 2))], ids=["all ids", "some ids"])
def frozen(request, target):
    checkpoint = Checkpoint.open(target)
    return Frozen.read(checkpoint, tied=False, vocab_size=VOCABULARY, ids=request.param, dtype=torch.float32)


def row_loss(frozen, state_H, teacher_H, id, distil):
    """Cross-entropy with the id, unless it is not among those that count, and with the teacher's distribution."""
    found_D = log_softmax(frozen.head_DH @ state_H, -1)
    column = frozen.ids_D.tolist().index(id) if id in frozen.ids_D.tolist() else None
    hard = 0.0 if column is None else -float(found_D[column])
    soft = -float(((frozen.head_DH @ teacher_H).softmax(-1) * found_D).sum())
    return (1 - distil) * hard + distil * soft


@pytest.mark.parametrize("distil", [0.0, 0.3])
def test_oracle_the_loss_of_a_module_is_the_weighted_mean_over_answers_and_passes(target, frozen, distil):
    model = noise(recipes.mtp(Keys.read(target / "config.json"))[0])
    given = batch(1)
    measured = MtpLoss(passes=3, decay=0.5, distil=distil)(model, frozen, given, generator(0, 0))
    total = weight = 0.0
    counts = [0, 0, 0]
    with torch.no_grad():
        for ids_P, taps_PKH, prompt, length in zip(
            given.ids_SP, given.taps_SPKH, given.prompt_S, given.length_S, strict=True
        ):
            hidden_PH = taps_PKH[: length - 1, 0]
            states = model(hidden_PH[None], frozen.embedding_VH[ids_P[1:length]][None], 3)
            for step, state_1TH in enumerate(states):
                for row in range(int(prompt) - 1, int(length) - step - 2):
                    place = row + step + 2
                    each = row_loss(frozen, state_1TH[0, row], hidden_PH[place - 1], int(ids_P[place]), distil)
                    total += 0.5**step * each
                    weight += 0.5**step
                    counts[step] += 1
    assert measured.rows == counts
    assert float(measured.loss.detach()) == pytest.approx(total / weight, rel=1e-4)


@pytest.mark.parametrize("distil", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["dflash", "dflash2"])
def test_oracle_the_loss_of_blocks_is_the_weighted_mean_over_their_drafts(target, form, frozen, kind, distil):
    model = noise(recipes.dflash(Keys.read(target / "config.json"), kind, form)[0])
    given = batch(len(form.taps) + 1)
    loss = DFlashLoss(blocks=5, block_size=form.block_size, mask_id=form.mask_id, gamma=2.0, distil=distil)
    measured = loss(model, frozen, given, generator(0, 7))
    places_SA, real_SA = anchors(given, 5, generator(0, 7))
    total = weight = 0.0
    counts = [0] * (form.block_size - 1)
    with torch.no_grad():
        for s, a in real_SA.nonzero().tolist():
            place, ids_P, length = int(places_SA[s, a]), given.ids_SP[s], int(given.length_S[s])
            block = torch.tensor([int(ids_P[place])] + [form.mask_id] * (form.block_size - 1))
            taps_1PX = given.taps_SPKH[s, None, :place, :-1].flatten(2)
            state_BH = model(taps_1PX, frozen.embedding_VH[block][None, None], torch.tensor([[place]]))[0, 0]
            for step in range(1, min(form.block_size, length - place)):
                at, id = place + step, int(ids_P[place + step])
                share = math.exp(-(step - 1) / 2.0)
                each = row_loss(frozen, state_BH[step], given.taps_SPKH[s, at - 1, -1], id, distil)
                total += share * (each + selected(model, frozen, state_BH[step], id, int(ids_P[at - 1])))
                weight += share
                counts[step - 1] += 1
    assert measured.rows == counts
    assert float(measured.loss.detach()) == pytest.approx(total / weight, rel=1e-4)


def selected(model, frozen, state_H, id, before):
    """Cross-entropy over the likeliest ids, of which the last makes room for the target's."""
    if not hasattr(model, "candidate_selector") or id not in frozen.ids_D.tolist():
        return 0.0
    selector = model.candidate_selector
    logits_D = frozen.head_DH @ state_H
    columns = logits_D.topk(selector.count).indices.tolist()
    ids = [int(frozen.ids_D[column]) for column in columns]
    if id not in ids:
        ids[-1], columns[-1] = id, frozen.ids_D.tolist().index(id)
    weighted_R = selector.predecessor_codebook[before] * (selector.hidden_projection.weight @ state_H)
    scores_C = logits_D[columns] + selector.successor_codebook[ids] @ weighted_R
    return -float(log_softmax(scores_C, -1)[ids.index(id)])


def test_anchors_are_places_of_the_answer_that_something_follows_each_once():
    given = batch(1)
    places_SA, real_SA = anchors(given, 50, generator(1, 2))
    for s, (prompt, length) in enumerate(zip(given.prompt_S.tolist(), given.length_S.tolist(), strict=True)):
        assert sorted(places_SA[s][real_SA[s]].tolist()) == list(range(prompt, length - 1))
    again, _ = anchors(given, 50, generator(1, 2))
    assert torch.equal(places_SA, again)


def test_every_pass_over_the_answers_sees_each_once_in_another_order():
    samples = [sample(2, 3 + n, 1, n) for n in range(8)]
    batches = Batches(samples, [0, 1, 3, 4, 6, 7], size=2, seed=5)
    orders = []
    for turn in range(2):
        lengths = [length for step in range(3) for length in batches[3 * turn + step].length_S.tolist()]
        assert sorted(lengths) == [5, 6, 8, 9, 11, 12]
        orders.append(lengths)
    assert orders[0] != orders[1]
    assert batches[4].length_S.tolist() == batches[4].length_S.tolist()


def test_the_most_frequent_ids_are_those_of_answers():
    answers = [Answer([9, 9, 9], [1, 2, 2, 3], 0.0), Answer([9], [3, 3, 1], 0.0)]
    assert most_frequent(answers, 2) == [1, 3]
    assert most_frequent(answers, 9) == [1, 2, 3]
