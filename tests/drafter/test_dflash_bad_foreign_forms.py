"""Folders in the forms of the speculators library and of transformers that cannot be served: the reason says why."""

import json

import pytest
import torch
from safetensors.torch import save_file

from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import VOCAB, config, tensors, write
from tests.drafter.test_dflash_bad_checkpoints import NESTED, WEIGHTS, changed
from tests.drafter.test_dflash_formats_oracle import reduced, speculators_config

IDS = [4, 5, 11, 30, 52]
SPECULATORS = {
    "drafts from the anchor's row": ({"sample_from_anchor": True}, {}, ("sample_from_anchor", "anchor")),
    "shifted": ({"shift_label": True}, {}, ("shift_label",)),
    "another algorithm": ({"speculators_model_type": "eagle3"}, {}, ("speculators_model_type", "dflash2")),
    "no layers": ({"transformer_layer_config": None}, {}, ("transformer_layer_config",)),
    "no taps": ({"aux_hidden_state_layer_ids": None}, {}, ("aux_hidden_state_layer_ids",)),
    "the embedding as a tap": ({"aux_hidden_state_layer_ids": [0, 2, 4]}, {}, ("aux_hidden_state_layer_ids", 1)),
    "a tap out of range": ({"aux_hidden_state_layer_ids": [2, 4, 9]}, {}, ("layer 8", "last is 7")),
    "another target": ({"target_hidden_size": 128}, {}, ("target_hidden_size", 64)),
    "no mask": ({"mask_token_id": None}, {}, ("mask_token_id",)),
    "more rows than ids": ({"draft_vocab_size": VOCAB + 1}, {}, ("draft_vocab_size", VOCAB)),
    "a head of another size": ({"draft_vocab_size": 6}, {}, ("[5]", "[6]")),
    "no head": ({}, {"lm_head.weight": None}, ("lm_head.weight",)),
    "no map": ({}, {"d2t": None}, ("d2t",)),
    "a map of floats": ({}, {"d2t": torch.zeros(5)}, ("d2t", "F32", "I64")),
    "a map below 0": ({}, {"d2t": torch.tensor([-1, 0, 0, 0, 0])}, ("d2t",)),
    "an id twice": ({}, {"d2t": torch.tensor([1, 0, 0, 0, 0])}, ("d2t",)),
    "only padding": ({}, {"d2t": torch.full((5,), VOCAB), "t2d": None}, ("d2t", VOCAB)),
    "maps that differ": ({}, {"t2d": torch.ones(VOCAB, dtype=torch.bool)}, ("t2d", "d2t")),
    "a choice of another size": ({}, {"t2d": torch.ones(7, dtype=torch.bool)}, ("t2d", "[7]", f"[{VOCAB}]")),
    "a choice of bytes": ({}, {"t2d": torch.ones(VOCAB, dtype=torch.uint8)}, ("t2d", "U8", "BOOL")),
}


@pytest.mark.parametrize("case", SPECULATORS)
def test_a_speculators_folder_that_cannot_be_served_says_why(tmp_path, refused, case):
    changes, named, words = SPECULATORS[case]
    reduced(tiny.tiny(1), IDS, tmp_path / "drafter", tensors=named)
    path = tmp_path / "drafter/config.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()), changes)))
    refused(*words)


def test_the_second_version_has_no_short_vocabulary(tmp_path, refused):
    oracle = tiny.tiny(2)
    write(tmp_path / "drafter", speculators_config(oracle, draft_vocab_size=32), tensors(oracle))
    refused("draft_vocab_size", VOCAB, mode="dflash2")


@pytest.mark.parametrize("key", ["mask_token_id", "target_layer_ids", "rope_parameters", "head_dim"])
def test_transformers_own_form_without_a_key_names_it(tmp_path, refused, key):
    oracle = tiny.tiny(1)
    values = (
        config(oracle) | oracle.special | {"model_type": "muse_glimmer_assistant", NESTED: None, "rope_theta": None}
    )
    write(tmp_path / "drafter", values | {key: None}, tensors(oracle))
    refused(key if key != "rope_parameters" else "rope_theta")


def test_names_of_one_form_are_not_taken_for_anothers(tmp_path, refused):
    oracle = tiny.tiny(1)
    named = tensors(oracle)
    named["encoder.fc.weight"] = named.pop("fc.weight")
    save_file(
        {name: value.clone() for name, value in named.items()},
        write(tmp_path / "drafter", config(oracle), tensors(oracle)) / WEIGHTS,
    )
    refused("lacks fc.weight")
