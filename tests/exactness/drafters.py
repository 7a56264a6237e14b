"""Drafters that nobody trained for a target's folder: of the published forms, read by the real programs.

What they propose is mostly wrong, which is the point: taps travel, contexts are fed, drafts are verified and refused.
The mask is a frequent token, and layers hardly move a block's rows, so that now and then a draft is right.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from dflash.model import DFlash2DraftModel, DFlashDraftModel
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

LITTLE = 0.02
FREQUENT = 28  # a comma


def write_qwen3(folder: Path, embedded: Path) -> Path:
    """A small random target of another family, with the tokenizer of the embedded model."""
    known = json.loads((embedded / "config.json").read_text())
    config = Qwen3Config(
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=48,
        vocab_size=known["vocab_size"],
        max_position_embeddings=2048,
        bos_token_id=known["bos_token_id"],
        eos_token_id=known["eos_token_id"],
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded / name, folder)
    return folder


def write_all(root: Path, model: Path) -> dict[str, str]:
    """One folder for each mode; returns the variables that name them to a drafter."""
    target = json.loads((model / "config.json").read_text())
    _dflash(root / "dflash", DFlashDraftModel, target, {})
    second = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 16, "selector_top_k": 4}
    _dflash(root / "dflash2", DFlash2DraftModel, target, second)
    _mtp(root / "mtp", target)
    folders = {f"TANDEM_DRAFTER_{mode.upper()}": str(root / mode) for mode in ("dflash", "dflash2", "mtp")}
    return {"TANDEM_DRAFTER_MODEL": str(model)} | folders


def _dflash(folder: Path, kind: type, target: Mapping, more: dict) -> None:
    kept = ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps")
    config = Qwen3Config(
        **{key: target[key] for key in kept if key in target},
        intermediate_size=128,
        num_hidden_layers=2,
        max_position_embeddings=target["max_position_embeddings"],
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=64,
        use_sliding_window=True,
    )
    layers = target["num_hidden_layers"]
    taps = [2, layers // 2, layers - 1]
    config.dflash_config = {"block_size": 8, "mask_token_id": FREQUENT, "target_layer_ids": taps} | more
    config.num_target_layers = layers
    drafter = kind(config)
    values = _noise({name.replace("codebook.weight", "codebook"): v for name, v in drafter.state_dict().items()})
    _write(folder, config.to_dict() | {"architectures": [kind.__name__]}, values)


def _mtp(folder: Path, target: Mapping) -> None:
    hidden, mlp, heads, kv = (
        target[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    )
    dim, layer = target.get("head_dim", hidden // heads), "mtp.layers.0."
    shapes = {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        "mtp.norm.weight": (hidden,),
        f"{layer}input_layernorm.weight": (hidden,),
        f"{layer}post_attention_layernorm.weight": (hidden,),
        f"{layer}self_attn.q_proj.weight": (heads * dim, hidden),
        f"{layer}self_attn.k_proj.weight": (kv * dim, hidden),
        f"{layer}self_attn.v_proj.weight": (kv * dim, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, heads * dim),
        f"{layer}mlp.gate_proj.weight": (mlp, hidden),
        f"{layer}mlp.up_proj.weight": (mlp, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, mlp),
    }
    if target["model_type"] == "qwen3":
        shapes |= {f"{layer}self_attn.{norm}.weight": (dim,) for norm in ("q_norm", "k_norm")}
    form = {
        "architectures": ["MtpDraftModel"],
        "mtp_num_hidden_layers": 1,
        "mtp_norm_form": "w",
        "mtp_input_order": "embedding_first",
        "mtp_hidden_state": "post_norm",
    }
    _write(folder, dict(target) | form, _noise({name: torch.empty(shape) for name, shape in shapes.items()}))


def _noise(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(value.shape, generator=generator) * LITTLE + ("norm" in name)
        for name, value in tensors.items()
    }


def _write(folder: Path, config: Mapping, tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
