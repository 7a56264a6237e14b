"""A folder that cannot be drafted with is refused before anything runs, with what is wrong in the message."""

import json
import shutil

import pytest
import torch

from services.drafter.mtp import MtpDrafter
from services.errors import BadCheckpoint
from tests.drafter import mtp_oracle as tiny
from tests.drafter.mtp_oracle import borrowed, build, edit_config, edit_tensors

QUERY = "mtp.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dense target with its module, one of experts, a target without, and a module in a folder of its own."""
    folder = tmp_path_factory.mktemp("made")
    for family in ("qwen3_5", "qwen3_5_moe"):
        tiny.write_target(folder / family, build(family))
    llama = build("llama")
    llama.target.save_pretrained(folder / "llama")
    tiny.write_own(folder / "own", llama, layers=1)
    return folder


@pytest.fixture
def refused(made, tmp_path):
    """Why a changed copy of a folder is refused."""

    def reason(name, tensors=None, **config):
        copy = tmp_path / "copy"
        shutil.copytree(made / name, copy)
        if config:
            edit_config(copy, **config)
        if tensors:
            edit_tensors(copy, tensors)
        lent = borrowed(made / ("llama" if name == "own" else name))
        with pytest.raises(BadCheckpoint) as error:
            MtpDrafter.load(copy, lent, draws="argmax")
        assert f"drafter.mtp: {copy}: " in str(error.value)
        return str(error.value).split(f"{copy}: ")[1]

    return reason


def without(name):
    return lambda found: {key: tensor for key, tensor in found.items() if key != name}


def changed(name, change):
    return lambda found: found | {name: change(found[name])}


def renamed(found):
    return {name.replace("mtp.", "model.mtp."): tensor for name, tensor in found.items()}


def test_a_target_without_a_module_is_said_to_have_none(refused):
    assert refused("llama") == (
        "it has no tensors named mtp.*: this checkpoint comes without a multi-token-prediction module"
    )


def test_a_module_under_other_names_is_none(refused):
    assert "no tensors named mtp.*" in refused("qwen3_5", renamed)


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.norm.weight", QUERY, "mtp.layers.0.mlp.down_proj.weight"])
def test_half_a_module_is_refused_naming_what_lacks(refused, name):
    assert refused("qwen3_5", without(name)) == f"model.safetensors lacks {name}"


def test_a_lost_router_is_named(refused):
    assert "mtp.layers.0.mlp.gate.weight" in refused("qwen3_5_moe", without("mtp.layers.0.mlp.gate.weight"))


@pytest.mark.parametrize("folder", ["qwen3_5", "own"])
@pytest.mark.parametrize("name", ["mtp.lm_head.weight", "mtp.embed_tokens.weight", "mtp.layers.1.mlp.up_proj.weight"])
def test_a_tensor_without_a_place_is_refused(refused, folder, name):
    assert f"{name}, for which the model has no place" in refused(folder, lambda found: found | {name: torch.ones(2)})


def test_a_folder_of_its_own_has_nothing_but_the_module(refused):
    stray = "model.layers.0.mlp.up_proj.weight"
    assert f"{stray}, for which" in refused("own", lambda found: found | {stray: torch.ones(2)})


def test_another_shape_is_refused_with_both(refused):
    reason = refused("qwen3_5", changed(QUERY, lambda tensor: tensor[:64]))
    assert reason == f"model.safetensors: {QUERY} has shape [64, 64], config.json asks for [128, 64]"


def test_a_quantised_module_is_refused_naming_tensor_and_type(refused):
    reason = refused("qwen3_5", changed(QUERY, lambda tensor: tensor.to(torch.int8)))
    assert f"{QUERY} is stored as I8" in reason


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"hidden_size": 32}, "hidden_size is 32, the target's is 64"),
        ({"num_hidden_layers": 9}, "it was made for a target of 9 layers; this one has 2"),
        ({"vocab_size": 77}, "vocab_size is 77; the target's tokenizer has 101 ids"),
    ],
)
def test_a_module_of_another_target_is_refused_with_both_numbers(refused, config, reason):
    assert refused("own", **config) == reason


def test_a_vocabulary_padded_otherwise_is_no_other_target(made, tmp_path):
    shutil.copytree(made / "own", tmp_path / "own")
    edit_config(tmp_path / "own", vocab_size=128)
    MtpDrafter.load(tmp_path / "own", borrowed(made / "llama"), draws="argmax")


@pytest.mark.parametrize("key", ["mtp_norm_form", "mtp_input_order", "mtp_hidden_state"])
def test_what_would_only_make_drafts_worse_has_to_be_said(refused, key):
    assert f"config.json lacks {key}, which has to be" in refused("own", **{key: None})


@pytest.mark.parametrize(
    ("folder", "config", "legal"),
    [
        ("own", {"mtp_norm_form": "2w"}, "w or 1+w"),
        ("own", {"mtp_input_order": "hidden"}, "embedding_first or hidden_first"),
        ("own", {"mtp_hidden_state": "pre_norm"}, "post_norm"),
        ("own", {"model_type": "mamba"}, "llama or qwen3 or qwen3_next"),
        ("own", {"hidden_act": "gelu"}, "silu"),
        ("own", {"num_attention_heads": 5}, "a divisor of num_attention_heads, 5"),
        ("own", {"num_nextn_predict_layers": 2}, "the same as mtp_num_hidden_layers, 1"),
        ("own", {"use_sliding_window": True}, "false"),
        ("own", {"architectures": "MtpDraftModel"}, "a list of texts"),
        ("qwen3_5", {"mtp_use_dedicated_embeddings": True}, "false"),
        ("qwen3_5", {"mtp_num_hidden_layers": 0}, "an integer from 1 on"),
        ("qwen3_5", {"head_dim": None}, "an integer from 1 on"),
        (
            "qwen3_5",
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0, "partial_rotary_factor": 1.5}},
            "an even part of 16 dimensions",
        ),
        ("qwen3_5", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5.0}}, "default or linear or llama3"),
        ("qwen3_5_moe", {"num_experts_per_tok": 9}, "at most num_experts, 8"),
        ("qwen3_5_moe", {"num_experts": None}, "an integer from 1 on"),
    ],
)
def test_a_wrong_key_is_named_with_what_it_may_be(refused, folder, config, legal):
    reason = refused(folder, **config)
    assert legal in reason
    assert "config.json" in reason
    assert any(key in reason for key in (*config, "num_key_value_heads", "partial_rotary_factor", "rope_type"))


def test_other_counts_of_experts_do_not_fit_the_tensors(refused):
    assert "has shape [8, 64], config.json asks for [6, 64]" in refused("qwen3_5_moe", num_experts=6)


def test_a_lost_shard_is_named(made, tmp_path):
    folder = tmp_path / "sharded"
    shutil.copytree(made / "own", folder)
    names = {"weight_map": {"mtp.fc.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(names))
    with pytest.raises(BadCheckpoint, match=r"model-00001-of-00002\.safetensors does not exist"):
        MtpDrafter.load(folder, borrowed(made / "llama"), draws="argmax")


def test_pickled_weights_are_not_read(made, tmp_path):
    shutil.copytree(made / "own", tmp_path / "own")
    (tmp_path / "own" / "model.safetensors").rename(tmp_path / "own" / "pytorch_model.bin")
    with pytest.raises(BadCheckpoint, match="only pickled weights, which can run code"):
        MtpDrafter.load(tmp_path / "own", borrowed(made / "llama"), draws="argmax")


def test_a_truncated_file_is_named(made, tmp_path):
    shutil.copytree(made / "own", tmp_path / "own")
    path = tmp_path / "own" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors is damaged"):
        MtpDrafter.load(tmp_path / "own", borrowed(made / "llama"), draws="argmax")


def test_a_folder_without_a_config_is_named(made, tmp_path):
    with pytest.raises(BadCheckpoint, match=r"drafter\.mtp: .*config\.json does not exist"):
        MtpDrafter.load(tmp_path / "nowhere", borrowed(made / "llama"), draws="argmax")
