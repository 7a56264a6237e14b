"""A folder that is no drafter for the target at hand is refused before a port opens; the reason names what is wrong."""

import json
import pickle

import pytest
import torch
from safetensors.torch import load_file

from services.drafter.dflash import MODES, DFlashDrafter
from services.errors import BadConfig
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import HIDDEN, VOCAB, config, tensors, write

WEIGHTS = "model.safetensors"
Q = "layers.1.self_attn.q_proj.weight"


NESTED = "dflash_config"


def changed(values, changes):
    """A key of dflash_config is written with a dot; None drops a key."""
    values = json.loads(json.dumps(values))
    for key, value in changes.items():
        place, name = (values[NESTED], key.removeprefix("special.")) if key.startswith("special.") else (values, key)
        place.pop(name, None)
        if value is not None:
            place[name] = value
    return values


REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
)
CONFIGS = {
    **{f"no {key}": (1, {key: None}, (key,)) for key in REQUIRED},
    "no mask id": (1, {"special.mask_token_id": None}, ("mask_token_id",)),
    "no frequency": (1, {"rope_parameters": None, "rope_theta": None}, ("rope_theta",)),
    "no vocabulary": (2, {"vocab_size": None}, ("vocab_size",)),
    "no kernel": (2, {"special.conv_kernel_size": None}, ("conv_kernel_size",)),
    "no group": (2, {"special.conv_group_size": None}, ("conv_group_size",)),
    "no rank": (2, {"special.selector_rank": None}, ("selector_rank",)),
    "no candidates": (2, {"special.selector_top_k": None}, ("selector_top_k",)),
    "no name at all": (1, {"architectures": None, NESTED: None}, ("architectures",)),
    "another architecture": (1, {"architectures": ["LlamaForCausalLM"], NESTED: None}, ("LlamaForCausalLM",)),
    "no layers to derive taps from": (
        1,
        {"special.target_layer_ids": None, "num_target_layers": None},
        ("num_target_layers",),
    ),
    "too few of them": (1, {"special.target_layer_ids": None, "num_target_layers": 3}, ("num_target_layers", 4)),
    "block of one": (1, {"special.block_size": 1}, ("block_size", 2)),
    "a block without end": (1, {"special.block_size": 10**9}, ("block_size", 256)),
    "layers without end": (1, {"num_hidden_layers": 10**12, "layer_types": None}, ("num_hidden_layers", 256)),
    "block of none": (1, {"special.block_size": 0}, ("block_size",)),
    "mask below 0": (1, {"special.mask_token_id": -1}, ("mask_token_id", -1)),
    "mask out of range": (1, {"special.mask_token_id": VOCAB}, ("mask_token_id", VOCAB)),
    "tap below 0": (1, {"special.target_layer_ids": [1, -1, 6]}, ("target_layer_ids",)),
    "tap out of range": (1, {"special.target_layer_ids": [1, 3, 8]}, ("layer 8", "last is 7")),
    "taps that are no list": (1, {"special.target_layer_ids": 3}, ("target_layer_ids",)),
    "fewer taps than fc reads": (1, {"special.target_layer_ids": [1, 3]}, ("fc.weight", [HIDDEN, 3 * HIDDEN])),
    "a target of other layers": (1, {"num_target_layers": 36}, (36, 8)),
    "another hidden size": (1, {"hidden_size": 128}, (128, 64)),
    "fewer ids than the target": (1, {"vocab_size": 90}, (90, VOCAB)),
    "kinds of layers it does not know": (1, {"layer_types": ["full_attention"] * 2 + ["ring"]}, ("layer_types",)),
    "kinds for too few layers": (1, {"layer_types": ["full_attention"]}, ("layer_types", 3)),
    "a window without a size": (
        1,
        {"layer_types": ["sliding_attention"] * 3, "sliding_window": None},
        ("sliding_window",),
    ),
    "a window of none": (1, {"layer_types": ["sliding_attention"] * 3, "sliding_window": 0}, ("sliding_window",)),
    "heads that do not share evenly": (1, {"num_key_value_heads": 3}, ("num_key_value_heads",)),
    "an odd head": (1, {"head_dim": 25}, ("head_dim",)),
    "another activation": (1, {"hidden_act": "gelu"}, ("hidden_act",)),
    "causality that is no flag": (1, {"is_causal": "no"}, ("is_causal",)),
    "a scaling it does not know": (1, {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, ("yarn",)),
    "groups that do not fit": (2, {"special.conv_group_size": 24}, ("conv_group_size", 64)),
    "another kernel": (2, {"special.conv_kernel_size": 3}, ("kernel_projection.weight", [16, 64], [24, 64])),
    "another group": (2, {"special.conv_group_size": 8}, ("kernel_projection.weight",)),
    "another rank": (2, {"special.selector_rank": 11}, ("candidate_selector",)),
    "another vocabulary": (2, {"vocab_size": VOCAB + 1}, ("codebook", [VOCAB + 1, 12])),
    "biases that are not there": (1, {"attention_bias": True}, ("_proj.bias",)),
    "a layer too many": (1, {"num_hidden_layers": 4, "layer_types": None}, ("lacks", "layers.3.")),
    "a layer too few": (1, {"num_hidden_layers": 2, "layer_types": None}, ("no place", "layers.2.")),
    # Relatives that would load, or nearly, and draft badly.
    "attention sinks": (1, {"special.use_swa": True}, ("use_swa", "sinks")),
    "sinks' bias": (1, {"special.attention_sink_bias": True}, ("attention_sink_bias", "sinks")),
    "scaled values": (1, {"special.attention_value_scale": 0.5}, ("attention_value_scale",)),
    "its own window": (1, {"special.swa_window_size": 128}, ("swa_window_size",)),
    "a projector": (1, {"special.projector_type": "mlp"}, ("projector_type", "Domino")),
    "a projector on top": (1, {"projector_type": "mlp"}, ("projector_type", "Domino")),
    "latent attention": (1, {"kv_lora_rank": 512}, ("kv_lora_rank", "latent")),
    "causality by another name": (1, {"special.causal": True}, ("causal",)),
    "interleaved pairs": (1, {"rope_is_neox_style": False}, ("rope_is_neox_style", "interleaved")),
    "norms of another form": (1, {"use_gemma_norm": True}, ("use_gemma_norm",)),
    "scaled logits": (1, {"logit_scale": 0.1}, ("logit_scale",)),
    "a head of its own": (1, {"has_own_lm_head": True}, ("has_own_lm_head",)),
    "a short head outside of its format": (1, {"draft_vocab_size": 32}, ("draft_vocab_size", "speculators")),
    "drafts from the anchor's row": (1, {"sample_from_anchor": True}, ("sample_from_anchor",)),
    "a key that nobody knows": (1, {"special.novelty": 1}, ("novelty", "block_size")),
    "quantised": (1, {"quantization_config": {"quant_method": "gptq"}}, ("quantization_config",)),
    "half of a rotation": (1, {"partial_rotary_factor": 0.5}, ("partial_rotary_factor",)),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_cannot_be_served_names_its_key(tmp_path, refused, case):
    version, changes, words = CONFIGS[case]
    oracle = tiny.tiny(version)
    write(tmp_path / "drafter", changed(config(oracle), changes), tensors(oracle))
    refused(*words, mode=MODES[version])


def test_flags_that_say_no_are_passed_over(tmp_path, target):
    usual = {"use_swa": False, "sample_from_anchor": False, "rope_is_neox_style": True, "draft_vocab_size": VOCAB}
    folder = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1), **usual)
    DFlashDrafter.load("dflash", folder, target, draws="argmax")


TENSORS = {
    "missing": (1, {Q: None}, ("lacks", Q)),
    "no context norm": (1, {"hidden_norm.weight": None}, ("lacks", "hidden_norm.weight")),
    "extra": (1, {"layers.0.mlp.extra.weight": torch.zeros(2)}, ("layers.0.mlp.extra.weight", "no place")),
    "wrong shape": (1, {Q: torch.zeros(96, 32)}, (Q, [96, 32], [96, 64])),
    "wrong fc": (1, {"fc.weight": torch.zeros(64, 128)}, ("fc.weight", [64, 128], [64, 192])),
    "integers": (1, {Q: torch.zeros(96, 64, dtype=torch.int8)}, (Q, "I8")),
    "a bias": (1, {"fc.bias": torch.zeros(64)}, ("fc.bias",)),
    "gates": (1, {"layers.0.self_attn.g_proj.weight": torch.zeros(96, 64)}, ("g_proj", "gated")),
    "norms of taps": (1, {"aux_hidden_norms.0.weight": torch.zeros(64)}, ("aux_hidden_norms", "each tap")),
    "sinks": (1, {"layers.0.self_attn.sinks": torch.zeros(4)}, ("sinks", "MiMo")),
    "an embedding": (1, {"embed_tokens.weight": torch.zeros(VOCAB, HIDDEN)}, ("embed_tokens", "Nemotron")),
    "a head": (1, {"lm_head.weight": torch.zeros(VOCAB, HIDDEN)}, ("lm_head", "map")),
    "a mask": (1, {"mask_embedding": torch.zeros(HIDDEN)}, ("mask_embedding",)),
    "convolutions in the first version": (
        1,
        {"layers.0.attention_conv.base_kernel": torch.zeros(2, 2, HIDDEN)},
        ("attention_conv.base_kernel",),
    ),
    "no kernel": (2, {"layers.2.mlp_conv.base_kernel": None}, ("layers.2.mlp_conv.base_kernel",)),
    "no selector": (2, {"candidate_selector.hidden_projection.weight": None}, ("hidden_projection",)),
    "no codebook": (2, {"candidate_selector.successor_codebook": None}, ("successor_codebook",)),
    "a short codebook": (
        2,
        {"candidate_selector.successor_codebook": torch.zeros(VOCAB - 1, 12)},
        ("successor_codebook", [VOCAB - 1, 12], [VOCAB, 12]),
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_tensor_that_does_not_fit_is_named(tmp_path, refused, case):
    version, changes, words = TENSORS[case]
    oracle = tiny.tiny(version)
    named = {name: value for name, value in (tensors(oracle) | changes).items() if value is not None}
    write(tmp_path / "drafter", config(oracle), named)
    refused(*words, mode=MODES[version])


@pytest.mark.parametrize("kept", [0, 0.2, 0.999])
def test_a_truncated_file_is_named(tmp_path, refused, kept):
    weights = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1)) / WEIGHTS
    content = weights.read_bytes()
    weights.write_bytes(content[: int(len(content) * kept)])
    refused(WEIGHTS)


def test_a_missing_shard_is_named(tmp_path, refused):
    folder = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1))
    homes = dict.fromkeys(load_file(folder / WEIGHTS), "model-1.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    (folder / WEIGHTS).unlink()
    refused("model-1.safetensors")


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_config_that_is_no_object_is_named(tmp_path, refused, text):
    path = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1)) / "config.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    refused("config.json")


def test_a_mask_embedding_in_a_file_of_its_own_is_named(tmp_path, refused):
    folder = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1))
    (folder / "mask_embedding.pt").write_bytes(b"")
    refused("mask_embedding.pt", "MiMo")


class Touch:
    """Unpickling this writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


def test_pickled_weights_and_code_are_never_run(tmp_path, refused, target):
    folder, marker = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(1)), tmp_path / "marker"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(marker)))
    (folder / "dflash.py").write_text(f"open({str(marker)!r}, 'w')")
    tiny.write(folder, config(tiny.tiny(1)) | {"auto_map": {"AutoModel": "dflash.Own"}}, tensors(tiny.tiny(1)))
    DFlashDrafter.load("dflash", folder, target, draws="argmax")
    (folder / WEIGHTS).unlink()
    refused("pickled", "safetensors")
    assert not marker.exists()


@pytest.mark.parametrize("version", [1, 2])
def test_a_drafter_of_the_other_version_names_the_setting_that_it_is_for(tmp_path, target, version):
    folder = tiny.write_drafter(tmp_path / "drafter", tiny.tiny(version))
    with pytest.raises(
        BadConfig, match=rf"drafter\.{MODES[3 - version]}: .*drafter holds .* drafter\.{MODES[version]}"
    ):
        DFlashDrafter.load(MODES[3 - version], folder, target, draws="argmax")
