"""The drafters with weights that ship draft as well as when they were made.

A fault in taps, norms or rotations, or in the context that is kept, shows as fewer accepted drafts and nowhere else."""

import json
from pathlib import Path

import pytest
import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from torch import nn

from services.config.settings import DrafterSettings
from services.drafter.borrowed import Borrowed
from services.drafter.dflash import DFlashDrafter
from services.drafter.feeding import feed_of
from services.drafter.interface import Ask, Opening
from services.drafter.process import load
from services.engine.weights.checkpoint import Checkpoint
from services.shipped.companions import MODELS, ROOT
from services.training.data import DataOptions, Target, prepare
from services.training.evaluate import acceptance
from services.training.lanes import Captured

DATA = Path(__file__).parent / "data"
GOLDEN = json.loads((DATA / "golden.json").read_text())
"""By mode, of drafts of 7 on the held-out answers: the share of rounds that accepted all up to each position."""

NEAR = 0.04  # processors round differently, and a draft that was nearly another may become that
TAPS = tuple(json.loads((ROOT / "dflash/config.json").read_text())["dflash_config"]["target_layer_ids"])


@pytest.fixture(scope="module")
def held_out(embedded_model, tmp_path_factory):
    """Answers of the target at temperature 0, with its states, for drafters that need so much of them."""
    target = Target(embedded_model)
    options = DataOptions(folder=tmp_path_factory.mktemp("states"), answers=DATA / "held-out.jsonl", lanes=8)
    prepare(target, options, Captured(TAPS, True))
    return lambda captured: prepare(target, options, captured)


@pytest.mark.parametrize("mode", MODELS)
def test_golden_acceptance_by_position(mode, held_out, embedded_model):
    (drafter,) = load(DrafterSettings(model=embedded_model, modes=mode, **{mode: ROOT / mode}))
    found = drafter.description
    samples = held_out(Captured(found.tap_layers, found.needs_final_hidden))
    assert acceptance(drafter, samples, count=7).by_position == pytest.approx(GOLDEN[mode], abs=NEAR)


@torch.no_grad()
@pytest.mark.parametrize(("mode", "oracle"), [("dflash", DFlashDraftModel), ("dflash2", DFlash2DraftModel)])
def test_oracle_the_package_that_published_the_format_loads_it_and_drafts_the_same(
    mode, oracle, held_out, embedded_model
):
    target = Target(embedded_model)
    borrowed = Borrowed.read(embedded_model, dtype=torch.float32, vocab_size=target.vocab_size)
    drafter = DFlashDrafter.load(mode, ROOT / mode, borrowed, draws="argmax")
    model, loading = oracle.from_pretrained(ROOT / mode, dtype=torch.float32, output_loading_info=True)
    assert not any(loading[each] for each in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    head = nn.Linear(borrowed.hidden_size, target.vocab_size, bias=False)
    head.weight.data = Checkpoint.open(embedded_model).read("model.embed_tokens.weight", torch.float32)
    for sample in held_out(Captured(TAPS, False)):
        ids = [*sample.answer.prompt_ids, *sample.answer.ids]
        length = len(sample.answer.prompt_ids) + len(sample.answer.ids) // 2
        taps_PKH, anchor = sample.taps_PKH[:length].float(), ids[length]
        context = drafter.open(Opening(first_id=ids[0], max_positions=4096, temperature=0.0, tap_layers=TAPS))
        drafter.absorb(context, feed_of(0, ids[1 : length + 1], taps_PKH))
        block = torch.tensor([anchor, *[model.mask_token_id] * (model.block_size - 1)])
        hidden_1BH = model.eval()(
            target_hidden=taps_PKH.flatten(1)[None],
            noise_embedding=borrowed.embedding_VH[block][None],
            position_ids=torch.arange(length + len(block))[None],
        )
        if mode == "dflash2":
            drafts = model.propose(hidden_1BH[:, 1:], torch.tensor([anchor]), head, 0.0)[0][0].tolist()
        else:
            drafts = head(hidden_1BH[0, 1:]).argmax(-1).tolist()
        assert list(drafter.draft([Ask(context, 99)])[0].ids) == drafts
