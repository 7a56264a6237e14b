"""A folder that cannot be served is refused before anything is allocated, and the BadCheckpoint says why."""

import json
import pickle
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from services.engine.engine import Engine
from services.errors import BadCheckpoint, BadConfig
from tests.engine.bad import WEIGHTS, edit_tensors, refuses
from tests.engine.tiny import CONFIG, edit_config, feed, tokens, write

Q = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, num_hidden_layers=2)
    return tmp_path


@pytest.fixture
def sharded(tmp_path):
    write(tmp_path, num_hidden_layers=2, shards="60KB")
    return tmp_path


def test_a_missing_tensor_is_named(folder):
    edit_tensors(folder, **{Q.replace(".", "__"): None})
    refuses(folder, WEIGHTS, Q)


def test_an_extra_tensor_is_named(folder):
    edit_tensors(folder, model__layers__2__mlp__up_proj__weight=torch.zeros(96, 64))
    refuses(folder, WEIGHTS, "model.layers.2.mlp.up_proj.weight")


def test_a_bias_the_config_does_not_announce_is_extra(folder):
    edit_tensors(folder, model__layers__1__self_attn__q_proj__bias=torch.zeros(64))
    refuses(folder, "q_proj.bias")


def test_a_wrong_shape_is_named_with_both_shapes(folder):
    edit_tensors(folder, **{Q.replace(".", "__"): torch.zeros(64, 32)})
    refuses(folder, WEIGHTS, Q, "[64, 32]", "[64, 64]")


@pytest.mark.parametrize("dtype", [torch.int64, torch.float8_e4m3fn, torch.bool])
def test_a_type_that_is_no_plain_float_is_named(folder, dtype):
    edit_tensors(folder, **{Q.replace(".", "__"): torch.zeros(64, 64).to(dtype)})
    refuses(folder, WEIGHTS, Q)


def test_frequencies_that_old_files_store_are_passed_over(folder):
    edit_tensors(folder, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(8))
    Engine.check(folder)


def header(table: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HOSTILE = {
    "empty": b"",
    "length 0": header({"a": entry([2], 0, 8)}, b"\0" * 8, length=0),
    "length 2^63": header({"a": entry([2], 0, 8)}, b"\0" * 8, length=2**63),
    "longer than the file": header({"a": entry([2], 0, 8)}, b"\0" * 8, length=10**6),
    "no JSON": header(b"{nope"),
    "not UTF-8": header(b'{"\xff": 1}'),
    "a list": header([1, 2]),
    "deep": header(b"[" * 100_000),
    "overlapping": header({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"\0" * 12),
    "negative": header({"a": entry([2], -8, 0)}, b"\0" * 8),
    "past the end": header({"a": entry([4], 0, 16)}, b"\0" * 8),
    "a hole": header({"a": entry([2], 8, 16)}, b"\0" * 16),
    "another span": header({"a": entry([3], 0, 8)}, b"\0" * 8),
    "huge shape": header({"a": entry([2**40, 2**40], 0, 8)}, b"\0" * 8),
    "unknown type": header({"a": entry([2], 0, 8, "X9")}, b"\0" * 8),
    "trailing bytes": header({"a": entry([2], 0, 8)}, b"\0" * 99),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_header_that_lies_is_refused_with_the_file_name(folder, content):
    (folder / WEIGHTS).write_bytes(content)
    refuses(folder, WEIGHTS)


@pytest.mark.parametrize("kept", [0.2, 0.999])
def test_a_truncated_file_is_named(folder, kept):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: int(len(content) * kept)])
    refuses(folder, WEIGHTS)


def test_a_folder_in_the_place_of_the_file_is_refused(folder):
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()
    refuses(folder, WEIGHTS)


def test_a_missing_shard_is_named(sharded):
    shard = min(sharded.glob("*.safetensors"))
    shard.unlink()
    refuses(sharded, shard.name)


def test_a_truncated_shard_is_named(sharded):
    shard = min(sharded.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    refuses(sharded, shard.name)


def edit_index(folder, edit):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    edit(index["weight_map"])
    path.write_text(json.dumps(index))


def test_an_index_naming_a_tensor_its_shard_lacks_is_refused(sharded):
    edit_index(sharded, lambda homes: homes.update(phantom=homes[Q]))
    refuses(sharded, "phantom")


def test_a_tensor_the_index_does_not_name_is_refused(sharded):
    edit_index(sharded, lambda homes: homes.pop(Q))
    refuses(sharded, Q)


def test_an_index_cannot_point_outside_of_the_folder(sharded):
    shard = min(sharded.glob("*.safetensors"))
    shard.rename(sharded.parent / "elsewhere.safetensors")
    edit_index(sharded, lambda homes: homes.update(dict.fromkeys(homes, "../elsewhere.safetensors")))
    refuses(sharded, "elsewhere.safetensors")


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "{}"])
def test_a_broken_index_is_named(sharded, index):
    (sharded / "model.safetensors.index.json").write_text(index)
    refuses(sharded, "model.safetensors")


@pytest.mark.parametrize(
    "key",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "model_type",
    ],
)
def test_a_config_without_a_required_key_names_it(folder, key):
    edit_config(folder, drop=[key])
    refuses(folder, "config.json", key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "mamba"),
        ("hidden_act", "gelu"),
        ("hidden_size", 64.0),
        ("hidden_size", 0),
        ("num_hidden_layers", True),
        ("num_hidden_layers", "2"),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", -1),
        ("num_key_value_heads", 3),
        ("head_dim", 15),
        ("tie_word_embeddings", "yes"),
        ("quantization_config", {"quant_method": "gptq"}),
        ("rope_parameters", {"rope_type": "yarn", "factor": 2.0}),
        ("rope_parameters", {"rope_type": "llama3", "factor": 2.0}),
        ("rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.5}),
        ("rope_parameters", 7),
    ],
)
def test_a_config_value_that_cannot_be_served_names_its_key(folder, key, value):
    edit_config(folder, **{key: value})
    refuses(folder, "config.json", key if not isinstance(value, dict) else "")


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[" * 100_000])
def test_a_config_that_is_no_object_is_named(folder, text):
    (folder / "config.json").unlink()
    if text is not None:
        (folder / "config.json").write_text(text)
    refuses(folder, "config.json")


def test_a_folder_that_is_none_is_refused(tmp_path):
    refuses(tmp_path / "nowhere")


def test_an_untied_model_needs_its_head(folder):
    edit_tensors(folder, lm_head__weight=None)
    refuses(folder, "lm_head.weight")


def test_a_tied_head_may_be_stored_if_it_is_the_embedding(folder):
    edit_config(folder, tie_word_embeddings=True)
    with pytest.raises(BadCheckpoint, match=r"lm_head\.weight differs"):
        Engine.load(folder, dtype=torch.float32, cache_rows=64)
    edit_tensors(folder, lm_head__weight=load_file(folder / WEIGHTS)["model.embed_tokens.weight"])
    assert Engine.load(folder, dtype=torch.float32, cache_rows=64).vocab_size == CONFIG["vocab_size"]


class Touch:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_pickled_weights_are_never_opened(folder, tmp_path):
    marker = tmp_path / "marker"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(marker)))
    Engine.check(folder)
    (folder / WEIGHTS).unlink()
    refuses(folder, "pickled", "safetensors")
    assert not marker.exists()


def test_code_in_the_folder_is_never_run(folder, tmp_path):
    marker = tmp_path / "marker"
    (folder / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_own.Own"})
    engine = Engine.load(folder, dtype=torch.float32, cache_rows=64)
    feed(engine, engine.open(4), tokens(4))
    assert not marker.exists()


def test_a_tokenizer_with_more_ids_than_the_model_is_refused(folder):
    with pytest.raises(BadCheckpoint, match="102"):
        Engine.load(folder, dtype=torch.float32, cache_rows=64, vocab_size=102)


@pytest.mark.parametrize("context", [0, 701])
def test_a_context_the_model_is_not_made_for_is_refused(folder, context):
    with pytest.raises(BadConfig, match="700"):
        Engine.load(folder, dtype=torch.float32, cache_rows=64, context=context)
