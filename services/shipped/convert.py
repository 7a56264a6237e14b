"""A GGUF file made into a Hugging Face folder, once; nothing else in Tandem reads GGUF."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.torch import save_file

from services.errors import BadCheckpoint
from services.shipped.gguf_tokenizer import tokenizer, tokenizer_config
from services.shipped.gguf_weights import weights


def convert(source: Path, folder: Path, progress: Callable[[float], None]) -> None:
    """Write the model's files into `folder`. A file that is cut short or lacks a key is a BadCheckpoint."""
    try:
        reader = gguf.GGUFReader(source)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config = model_config(fields)
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", generation_config(config))
        write_json(folder / "tokenizer_config.json", tokenizer_config(fields))
        tokenizer(fields).save(str(folder / "tokenizer.json"))
        tensors = weights(reader.tensors, config, progress)
    except KeyError as error:
        raise BadCheckpoint(f"{source.name} lacks the key {error}") from error
    except (ValueError, IndexError) as error:
        raise BadCheckpoint(f"{source.name} is damaged: {error}") from error
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    # safetensors lets only the owner read it; a server may run as somebody else, like every other file here allows
    shutil.copymode(folder / "config.json", folder / "model.safetensors")


def model_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    if fields["general.architecture"] != "llama":
        raise BadCheckpoint(f"the GGUF file holds a {fields['general.architecture']}, not a llama")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        "rope_theta": fields["llama.rope.freq_base"],
        "rope_scaling": None,
        "rms_norm_eps": shortest(fields["llama.attention.layer_norm_rms_epsilon"]),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def generation_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def shortest(value: float) -> float:
    """The decimal number somebody wrote before it was stored in 32 bits: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
