"""Tiny random models of each family give what transformers gives, number for number and token for token."""

import pytest
import torch

from services.engine.engine import Engine
from tests.engine.tiny import edit_config, feed, greedy, tokens, write

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
VARIANTS = {
    "llama": {
        "grouped heads": {},
        "one key head": {"num_key_value_heads": 1},
        "as many key heads": {"num_key_value_heads": 4},
        "a key head for three": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72},
        "tied head": {"tie_word_embeddings": True},
        "biases": {"attention_bias": True, "mlp_bias": True},
        "head size of its own": {"head_dim": 24},
        "odd widths": {"hidden_size": 56, "intermediate_size": 101, "vocab_size": 77},
        "llama3 rope": {"rope_parameters": LLAMA3},
        "linear rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0}},
    },
    "qwen3": {
        "queries wider than the state": {},
        "queries narrower than the state": {"head_dim": 8},
        "one key head": {"num_key_value_heads": 1},
        "a key head for three": {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72},
        "tied head": {"tie_word_embeddings": True},
        "biases": {"attention_bias": True},
        "odd widths": {"hidden_size": 56, "intermediate_size": 101, "vocab_size": 77},
        "far positions": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        "windows switched off": {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1},
        "windows beyond the last layer": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3},
    },
}
EACH = {f"{family}, {name}": (family, config) for family, of in VARIANTS.items() for name, config in of.items()}
FAMILY = pytest.mark.parametrize("family", VARIANTS)


@pytest.fixture(params=EACH.values(), ids=EACH, scope="module")
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    family, config = request.param
    oracle = write(folder, family=family, **config)
    return Engine.load(folder, dtype=torch.float32, cache_rows=2048), oracle


def test_logits_taps_and_final_hidden_equal_the_oracle(pair):
    engine, oracle = pair
    ids = tokens(50, engine.vocab_size)
    slot = engine.open(50)
    feed(engine, slot, ids[:7])
    result = feed(engine, slot, ids[7:], taps=[1, 0], hidden=True)
    with torch.no_grad():
        expected = oracle(torch.tensor([ids]), output_hidden_states=True)
    torch.testing.assert_close(result.logits_RV, expected.logits[0, 7:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.hidden_TH, expected.hidden_states[-1][0, 7:], rtol=1e-4, atol=1e-4)
    assert list(result.taps) == [1, 0]
    for layer, tap_TH in result.taps.items():
        torch.testing.assert_close(tap_TH, expected.hidden_states[layer + 1][0, 7:], rtol=1e-4, atol=1e-4)


def test_greedy_tokens_equal_the_oracle(pair):
    engine, oracle = pair
    prompt = tokens(9, engine.vocab_size, seed=1)
    expected = oracle.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        max_new_tokens=40,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert greedy(engine, prompt, 40) == expected[0, len(prompt) :].tolist()


@FAMILY
def test_flat_rope_settings_of_older_files_mean_the_same_as_the_oracle(tmp_path, family):
    oracle = write(tmp_path, family=family, rope_parameters=LLAMA3)
    scaling = {"type" if key == "rope_type" else key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    edit_config(tmp_path, drop=["rope_parameters"], rope_theta=500.0, rope_scaling=scaling)
    engine = Engine.load(tmp_path, dtype=torch.float32, cache_rows=64)
    ids = tokens(50)
    with torch.no_grad():
        expected = oracle(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(feed(engine, engine.open(50), ids).logits_RV, expected, rtol=1e-4, atol=1e-4)


@FAMILY
def test_bf16_stays_close_to_the_oracle(tmp_path, family):
    oracle = write(tmp_path, family=family, dtype=torch.bfloat16)
    engine = Engine.load(tmp_path, dtype=torch.bfloat16, cache_rows=64)
    ids = tokens(50)
    with torch.no_grad():
        expected = oracle.float()(torch.tensor([ids])).logits[0]
    logits_RV = feed(engine, engine.open(50), ids).logits_RV
    assert logits_RV.dtype == torch.float32
    assert (logits_RV - expected).norm() < 0.03 * expected.norm()


@FAMILY
def test_shards_load_as_one_file_does_in_the_oracle(tmp_path, family):
    oracle = write(tmp_path, family=family, shards="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    engine = Engine.load(tmp_path, dtype=torch.float32, cache_rows=64)
    ids = tokens(20)
    with torch.no_grad():
        expected = oracle(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(feed(engine, engine.open(20), ids).logits_RV, expected, rtol=1e-4, atol=1e-4)
