"""The drafters that can be trained: sizes taken from the target, config.json in the published form.

Shape key: H hidden size, K taps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from services.drafter.checkpoints import mtp as mtp_checkpoints
from services.drafter.checkpoints.mtp import FORMS
from services.engine.models.rope import read_rope
from services.engine.ops.attention import Heads
from services.engine.ops.rope import Llama3Scaling, Rope
from services.engine.weights.config import Keys
from services.errors import BadConfig
from services.training.modules.dflash import DFlash, Second, Shape
from services.training.modules.layers import Sizes
from services.training.modules.mtp import Mtp

ModelKind = Literal["mtp", "dflash", "dflash2"]
COPIED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "max_position_embeddings")


@dataclass(frozen=True, slots=True, kw_only=True)
class DFlashForm:
    """`taps` None: from the second of the target's layers to the third from the end, evenly."""

    layers: int = 2
    block_size: int = 8
    taps: tuple[int, ...] | None = None
    mask_id: int
    rank: int = 64
    candidates: int = 16
    conv_taps: int = 2
    conv_group: int = 16


def sizes(keys: Keys, *, head_norms: bool, biases: bool) -> Sizes:
    """Of a layer like the target's."""
    hidden, query = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    return Sizes(
        hidden=hidden,
        mlp=keys.integer("intermediate_size"),
        heads=Heads(query, keys.integer("num_key_value_heads", query), keys.integer("head_dim", hidden // query)),
        eps=keys.number("rms_norm_eps"),
        rope=read_rope(keys),
        head_norms=head_norms,
        attention_bias=biases and keys.flag("attention_bias", False),
        mlp_bias=biases and keys.flag("mlp_bias", False),
    )


def evenly(layers: int, count: int) -> tuple[int, ...]:
    """`count` taps of a target of so many layers."""
    if count == 1:
        return (layers // 2,)
    if layers < 4:
        raise BadConfig(f"taps: a target of {layers} layers needs them named, as 0-based layers")
    return tuple(round(1 + index * (layers - 4) / (count - 1)) for index in range(count))


def mtp(keys: Keys) -> tuple[Mtp, dict[str, Any]]:
    """A module of one layer in the form of the target's family, and its config.json."""
    family = keys.one_of("model_type", tuple(FORMS))
    form = FORMS[family]
    if form.gated or form.plus_one or form.rotated != 1.0:
        raise BadConfig(f"target: no mtp module can be trained for a {family}; legal are llama and qwen3")
    shape = sizes(keys, head_norms=form.head_norms, biases=True)
    config = _common(keys, shape) | {
        "architectures": [mtp_checkpoints.ARCHITECTURE],
        "model_type": family,
        "num_hidden_layers": keys.integer("num_hidden_layers"),
        "num_nextn_predict_layers": 1,
        "attention_bias": shape.attention_bias,
        "mlp_bias": shape.mlp_bias,
        "mtp_norm_form": "w",
        "mtp_input_order": "embedding_first",
        "mtp_hidden_state": "post_norm",
    }
    return Mtp(shape), config


def dflash(keys: Keys, kind: Literal["dflash", "dflash2"], form: DFlashForm) -> tuple[DFlash, dict[str, Any]]:
    """Layers have Qwen3's form whatever the target is, as all published drafters do."""
    shape = sizes(keys, head_norms=True, biases=False)
    layers = keys.integer("num_hidden_layers")
    taps = form.taps or evenly(layers, 5)
    if max(taps) >= layers:
        raise BadConfig(f"taps are {[*taps]}; the target's layers are 0 to {layers - 1}")
    special: dict[str, Any] = {
        "block_size": form.block_size,
        "mask_token_id": form.mask_id,
        "target_layer_ids": list(taps),
    }
    second = None
    if kind == "dflash2":
        vocab_size = keys.integer("vocab_size")
        if shape.hidden % form.conv_group:
            raise BadConfig(f"conv-group is {form.conv_group}, and has to divide the hidden size, {shape.hidden}")
        second = Second(
            conv_taps=form.conv_taps,
            conv_group=form.conv_group,
            rank=form.rank,
            candidates=form.candidates,
            vocab_size=vocab_size,
        )
        special |= {
            "conv_kernel_size": form.conv_taps,
            "conv_group_size": form.conv_group,
            "selector_rank": form.rank,
            "selector_top_k": form.candidates,
        }
    config = _common(keys, shape) | {
        "architectures": ["DFlashDraftModel" if second is None else "DFlash2DraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": form.layers,
        "num_target_layers": layers,
        "layer_types": ["full_attention"] * form.layers,
        "use_sliding_window": False,
        "attention_bias": False,
        "is_causal": False,
        "tie_word_embeddings": False,
        "dflash_config": special,
    }
    model = DFlash(Shape(sizes=shape, layers=form.layers, taps=len(taps), block_size=form.block_size, second=second))
    return model, config


def _common(keys: Keys, shape: Sizes) -> dict[str, Any]:
    return {key: keys.integer(key) for key in COPIED} | {
        "num_key_value_heads": shape.heads.kv,
        "head_dim": shape.heads.dim,
        "rms_norm_eps": shape.eps,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        **rope_keys(shape.rope),
    }


def rope_keys(rope: Rope) -> dict[str, Any]:
    """Rotary settings as config.json has them."""
    match rope.scaling:
        case Llama3Scaling() as scaling:
            table = {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": int(scaling.original_context),
            }
        case 1.0:
            return {"rope_theta": rope.theta}
        case factor:
            table = {"rope_type": "linear", "factor": factor}
    return {"rope_theta": rope.theta, "rope_scaling": table}


def tensors(model: nn.Module) -> Mapping[str, Tensor]:
    """Under the names of the published files."""
    prefix = mtp_checkpoints.PREFIX if isinstance(model, Mtp) else ""
    return {prefix + name: parameter.detach() for name, parameter in model.named_parameters()}
