"""What only a Qwen3 checkpoint can have wrong: its norms of heads, its head size, and windows."""

import pytest
import torch

from services.engine.engine import Engine
from tests.engine.bad import WEIGHTS, edit_tensors, refuses
from tests.engine.tiny import edit_config, write

LAYERS = 3


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, family="qwen3", num_hidden_layers=LAYERS)
    return tmp_path


@pytest.mark.parametrize("norm", ["q_norm", "k_norm"])
def test_a_missing_norm_of_heads_is_named(folder, norm):
    edit_tensors(folder, **{f"model__layers__1__self_attn__{norm}__weight": None})
    refuses(folder, WEIGHTS, f"model.layers.1.self_attn.{norm}.weight")


def test_a_norm_as_wide_as_all_heads_together_has_the_wrong_shape(folder):
    edit_tensors(folder, model__layers__0__self_attn__q_norm__weight=torch.ones(4 * 24))
    refuses(folder, "q_norm.weight", "[96]", "[24]")


def test_norms_of_heads_have_no_place_in_a_llama(tmp_path):
    write(tmp_path, num_hidden_layers=2)
    edit_tensors(tmp_path, model__layers__1__self_attn__k_norm__weight=torch.ones(16))
    refuses(tmp_path, "k_norm.weight", "no place")


def test_a_bias_in_the_mlp_has_no_place(folder):
    edit_config(folder, mlp_bias=True)
    edit_tensors(folder, model__layers__0__mlp__up_proj__bias=torch.zeros(96))
    refuses(folder, "up_proj.bias", "no place")


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads", "rms_norm_eps"])
def test_a_config_without_a_key_of_the_heads_names_it(folder, key):
    edit_config(folder, drop=[key])
    refuses(folder, "config.json", f"lacks {key}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("head_dim", 25),
        ("num_key_value_heads", 3),
        ("attention_bias", 1),
        ("layer_types", ["full_attention", "sliding_attention", "full_attention"]),
        ("layer_types", ["full_attention"] * (LAYERS + 1)),
        ("layer_types", "full_attention"),
        ("layer_types", [None] * LAYERS),
        ("rope_parameters", {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}),
    ],
)
def test_a_config_value_that_cannot_be_served_names_its_key(folder, key, value):
    edit_config(folder, **{key: value})
    refuses(folder, "config.json", key)


@pytest.mark.parametrize("first", [None, 0, LAYERS - 1])
def test_a_window_in_some_layer_is_refused(folder, first):
    """Older files have no `layer_types`."""
    edit_config(folder, drop=["layer_types"], use_sliding_window=True, sliding_window=64, max_window_layers=first)
    refuses(folder, "config.json", "use_sliding_window")


@pytest.mark.parametrize(
    "windows",
    [
        {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": LAYERS},
    ],
)
def test_a_window_in_no_layer_is_none(folder, windows):
    edit_config(folder, drop=["layer_types"], **windows)
    Engine.check(folder)


@pytest.mark.parametrize("value", ["yes", 1])
def test_a_switch_that_is_no_truth_value_is_named(folder, value):
    edit_config(folder, drop=["layer_types"], use_sliding_window=value)
    refuses(folder, "config.json", "use_sliding_window", "true or false")
