"""Tensors of a llama GGUF file as Hugging Face names them, in bf16.

Shape key: O output rows, I input columns, N heads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gguf
import torch

from services.errors import BadCheckpoint

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def names(layers: int) -> dict[str, str]:
    """GGUF name -> Hugging Face name. There is no head: it is the embedding, transposed."""
    outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    inner = {
        f"blk.{layer}.{ours}.weight": f"model.layers.{layer}.{theirs}.weight"
        for layer in range(layers)
        for ours, theirs in LAYER.items()
    }
    return outer | inner


def weights(
    tensors: Iterable[Any], config: Mapping[str, Any], progress: Callable[[float], None]
) -> dict[str, torch.Tensor]:
    """Every tensor of the model and no other, dequantised."""
    found = {tensor.name: tensor for tensor in tensors}
    expected = names(config["num_hidden_layers"])
    if odd := sorted(found.keys() ^ expected.keys()):
        raise BadCheckpoint(f"the GGUF file lacks, or has too many, tensors: {', '.join(odd[:5])}")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    result = {}
    for done, (name, target) in enumerate(expected.items(), start=1):
        tensor = found[name]
        weight = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        if count := heads.get(name.split(".")[-2]):
            weight = rotate_by_halves(weight, count)
        result[target] = weight.to(torch.bfloat16).contiguous()
        progress(done / len(expected))
    return result


def rotate_by_halves(weight_OI: torch.Tensor, heads: int) -> torch.Tensor:
    """Put the rows of a query or key projection back in order: llama.cpp rotates neighbouring pairs, and so stores
    row i of a head's first half beside row i of its second half."""
    O, I = weight_OI.shape  # noqa: E741
    return weight_OI.reshape(heads, O // heads // 2, 2, I).swapaxes(1, 2).reshape(O, I)
