"""Modules with gradients against the drafters that serve, and against the package that published DFlash."""

import pytest
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from torch import nn

from services.drafter.borrowed import Borrowed
from services.drafter.checkpoints import mtp as mtp_checkpoints
from services.drafter.checkpoints.formats import read_recipe
from services.drafter.checkpoints.tensors import Plan
from services.drafter.dflash import DFlashDrafter
from services.drafter.feeding import feed_of
from services.drafter.interface import Ask, Opening
from services.drafter.models.dflash import DFlashBody
from services.drafter.models.keys import Past
from services.drafter.models.mtp import MtpModel, Rows
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.training import beginnings, recipes
from tests.drafter.dflash_oracle import noise

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
VOCABULARY, HIDDEN, TAPS = 101, 64, 3
KINDS = ("dflash", "dflash2")
ORACLES = {"dflash": DFlashDraftModel, "dflash2": DFlash2DraftModel}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=KINDS)
def made(request, target, form, exported, tmp_path):
    """A module, its folder, and what kind it is."""
    model, config = recipes.dflash(Keys.read(target / "config.json"), request.param, form)
    return noise(model, 3), exported(tmp_path, model, config), request.param


def blocks(borrowed, anchors, form):
    """Embedded [S, A, B, H]."""
    masks = torch.full((*anchors.shape, form.block_size - 1), form.mask_id)
    return borrowed.embedding_VH[torch.cat([anchors[..., None], masks], -1)]


@torch.no_grad()
def test_oracle_every_block_of_a_batch_is_what_the_drafter_computes_for_it_alone(made, target, form):
    model, folder, _ = made
    borrowed = Borrowed.read(target, dtype=torch.float32, vocab_size=VOCABULARY)
    taps_SPKH = random(2, 20, TAPS, HIDDEN)
    places_SA, anchors_SA = torch.tensor([[3, 17, 9], [1, 20, 12]]), torch.tensor([[5, 6, 7], [8, 9, 100]])
    states_SABH = model(taps_SPKH.flatten(2), blocks(borrowed, anchors_SA, form), places_SA)
    checkpoint, recipe = Checkpoint.open(folder), read_recipe(folder)
    body = DFlashBody(Plan.of(recipe, checkpoint), checkpoint, torch.float32)
    for sequence in range(2):
        for block, place in enumerate(places_SA[sequence].tolist()):
            memory = body.memory()
            body.absorb(taps_SPKH[sequence, :place].flatten(1), [memory], [place])
            alone_BH = body(blocks(borrowed, anchors_SA, form)[sequence, block], [memory])
            torch.testing.assert_close(states_SABH[sequence, block], alone_BH, **CLOSE)


@torch.no_grad()
def test_oracle_the_package_that_published_the_format_loads_it_and_gives_the_same(made, target, form):
    model, folder, kind = made
    borrowed = Borrowed.read(target, dtype=torch.float32, vocab_size=VOCABULARY)
    oracle, loading = ORACLES[kind].from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(loading[each] for each in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    taps_PKH, anchor = random(13, TAPS, HIDDEN), 42
    block_1BH = blocks(borrowed, torch.tensor([[anchor]]), form)[0]
    hidden_1BH = oracle.eval()(
        target_hidden=taps_PKH.flatten(1)[None],
        noise_embedding=block_1BH,
        position_ids=torch.arange(13 + form.block_size)[None],
    )
    ours_11BH = model(taps_PKH.flatten(1)[None], block_1BH[None], torch.tensor([[13]]))
    torch.testing.assert_close(ours_11BH[0], hidden_1BH, **CLOSE)
    if kind == "dflash2":
        head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        head.weight.data = Checkpoint.open(target).read("lm_head.weight", torch.float32)
        ids_1J, candidates_1JC, _ = oracle.propose(hidden_1BH[:, 1:], torch.tensor([anchor]), head, 0.0)
        before, walked = anchor, []
        for row, ids_C in enumerate(candidates_1JC[0]):
            unary_C = head(hidden_1BH[0, row + 1])[ids_C]
            scores_1C = model.candidate_selector(
                unary_C[None], ids_C[None], hidden_1BH[0, row + 1][None], torch.tensor([before])
            )
            before = int(ids_C[scores_1C[0].argmax()])
            walked.append(before)
        assert walked == ids_1J[0].tolist()
        drafter = DFlashDrafter.load("dflash2", folder, borrowed, draws="argmax")
        context = drafter.open(Opening(first_id=1, max_positions=99, temperature=0.0, tap_layers=form.taps))
        drafter.absorb(context, feed_of(0, [*range(12), anchor], taps_PKH))
        assert list(drafter.draft([Ask(context, 9)])[0].ids) == walked


@pytest.fixture(params=["llama", "qwen3"])
def module(request, target, exported, tmp_path):
    """A module with the target's sizes in the form of a family, and its folder."""
    (tmp_path / "as.json").write_text((target / "config.json").read_text().replace('"llama"', f'"{request.param}"'))
    model, config = recipes.mtp(Keys.read(tmp_path / "as.json"))
    return noise(model, 3), exported(tmp_path / "mtp", model, config)


@torch.no_grad()
def test_oracle_every_pass_of_every_row_is_what_the_drafter_goes_through(module, target):
    model, folder = module
    embedding_VH = Checkpoint.open(target).read("model.embed_tokens.weight", torch.float32)
    recipe, checkpoint = mtp_checkpoints.read(folder)
    served = MtpModel(recipe, checkpoint, embedding_VH, torch.float32)
    count, passes = 12, 4
    hidden_TH = random(count, HIDDEN)
    ids = torch.randint(VOCABULARY, (count + 1,), generator=torch.Generator().manual_seed(1)).tolist()
    states = model(hidden_TH[None], embedding_VH[ids[1:]][None], passes)
    assert [len(state_1TH[0]) for state_1TH in states] == [count - step for step in range(passes)]
    for row in range(count - passes + 1):
        past: Past = served.pasts()[0]
        [made_TH] = served(0, [Rows(past, 0, ids[1 : row + 2], hidden_TH[: row + 1])])
        for step in range(passes):
            torch.testing.assert_close(states[step][0, row], made_TH[-1], **CLOSE)
            if step < passes - 1:
                [made_TH] = served(0, [Rows(past, row + 1 + step, [ids[row + step + 2]], made_TH[-1:])])


@torch.no_grad()
def test_a_module_begins_with_the_targets_last_layers(target, form):
    checkpoint = Checkpoint.open(target)
    keys = Keys.read(target / "config.json")
    model, _ = recipes.dflash(keys, "dflash2", form)
    beginnings.from_target(model, checkpoint, 6, seed=1)
    for own, layer in ((0, 4), (1, 5)):
        for name in ("self_attn.q_proj.weight", "mlp.down_proj.weight", "post_attention_layernorm.weight"):
            taken = checkpoint.read(f"model.layers.{layer}.{name}", torch.float32)
            assert torch.equal(model.layers[own].get_parameter(name), taken)
    assert torch.equal(2 * model.norm.weight, checkpoint.read("model.norm.weight", torch.float32))
    assert model.candidate_selector.successor_codebook.abs().max() == 0
