"""Tiny random targets with a multi-token-prediction module, written by transformers, and that module as the oracle.

Shape key: T rows, H hidden size, V vocabulary.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM

from services.drafter.borrowed import Borrowed
from services.drafter.interface import Ask, Draft, Feed, Opening
from services.drafter.mtp import MtpDrafter
from services.wire.codec import TensorBytes

SIZES = {
    "vocab_size": 101,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
MROPE = {"rope_parameters": PARTIAL["rope_parameters"] | {"mrope_section": [2, 1, 1], "mrope_interleaved": True}}
LINEAR = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
EXPERTS = {
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 40,
    "num_experts": 8,
    "num_experts_per_tok": 3,
}
VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "out_hidden_size": 64,
    "num_position_embeddings": 16,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
SPECIAL = {"image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}


def _llama(**more) -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**SIZES | {"attention_bias": True, "mlp_bias": True} | more))


def _qwen3(**more) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES | more))


def _next(**more) -> Qwen3NextForCausalLM:
    return Qwen3NextForCausalLM(Qwen3NextConfig(**SIZES | PARTIAL | LINEAR | EXPERTS | more))


def _next_dense(**more) -> Qwen3NextForCausalLM:
    return _next(**{"num_experts": 0} | more)


def _dense(**more) -> Qwen3_5ForCausalLM:
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SIZES | MROPE | LINEAR | more))


def _moe(**more) -> Qwen3_5MoeForCausalLM:
    sizes = {key: size for key, size in SIZES.items() if key != "intermediate_size"}
    return Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**sizes | MROPE | LINEAR | EXPERTS | more))


def _wrapped(**more) -> Qwen3_5ForConditionalGeneration:
    text = SIZES | MROPE | LINEAR | more
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=VISION, **SPECIAL))


def _wrapped_moe(**more) -> Qwen3_5MoeForConditionalGeneration:
    text = {key: size for key, size in SIZES.items() if key != "intermediate_size"} | MROPE | LINEAR | EXPERTS | more
    return Qwen3_5MoeForConditionalGeneration(Qwen3_5MoeConfig(text_config=text, vision_config=VISION, **SPECIAL))


TARGETS = {
    "llama": _llama,
    "qwen3": _qwen3,
    "qwen3_next": _next,
    "qwen3_next dense": _next_dense,
    "qwen3_5": _dense,
    "qwen3_5_moe": _moe,
    "qwen3_5 wrapped": _wrapped,
    "qwen3_5_moe wrapped": _wrapped_moe,
}
PLAIN_NORMS = ("llama", "qwen3")


@dataclass(frozen=True, slots=True)
class Oracle:
    """A target and its module; all layers of the module share the projection and the norms, as the files do."""

    target: PreTrainedModel
    module: MtpModel

    @property
    def hidden_size(self) -> int:
        return self.module.config.hidden_size

    @torch.no_grad()
    def hidden(self, ids: Sequence[int]) -> Tensor:
        """The state after the final norm, [T, H]."""
        return self.target(torch.tensor([list(ids)]), output_hidden_states=True).hidden_states[-1][0]

    @torch.no_grad()
    def layer(self, layer: int, hidden_TH: Tensor, ids: Sequence[int], positions: Sequence[int]) -> Tensor:
        """All rows of one layer at once, [T, H]."""
        cache = MtpCache(config=self.target.config.get_mtp_config())
        positions_1T, ids_1T = torch.tensor([list(positions)]), torch.tensor([list(ids)])
        return self.module.forward_layer(layer, hidden_TH[None], positions_1T, cache, input_ids=ids_1T)[0]

    @torch.no_grad()
    def logits(self, hidden_TH: Tensor) -> Tensor:
        return self.target.lm_head(hidden_TH)

    def draft(self, ids: Sequence[int], hidden_TH: Tensor, count: int) -> tuple[list[int], Tensor]:
        """The likeliest `count` tokens after `ids`, whose last is the anchor, and the logits of each [count, V].

        Every layer runs over all its rows again for each token. The first pass of layer i pairs row t of the layer
        before with the id of t + 1 + i; a further pass of it adds one row."""
        layers = len(self.module.layers)
        rows = [(hidden_TH[:0], [], []) for _ in range(layers)]
        known, drafted, logits = list(ids), [], []
        state_TH = hidden_TH
        for step in range(count):
            layer = step % layers
            if step < layers:
                rows[layer] = state_TH, known[1 + step :], list(range(1 + step, len(known)))
            else:
                before_TH, before_ids, positions = rows[layer]
                rows[layer] = (
                    torch.cat([before_TH, state_TH[-1:]]),
                    [*before_ids, known[-1]],
                    [*positions, len(known) - 1],
                )
            state_TH = self.layer(layer, *rows[layer])
            logits.append(self.logits(state_TH[-1]))
            drafted.append(int(logits[-1].argmax()))
            known.append(drafted[-1])
        return drafted, torch.stack(logits)


def build(family: str, *, layers: int = 1, seed: int = 3, **config) -> Oracle:
    """Every parameter is noise, so that none can be forgotten unnoticed."""
    mtp = {"num_mtp_layers": layers, "mtp_layer_types": ["full_attention"] * layers}
    target = TARGETS[family](**mtp | config).eval()
    module = MtpModel(target, layers).eval()
    generator = torch.Generator().manual_seed(seed)
    around = 1.0 if family in PLAIN_NORMS else 0.0
    with torch.no_grad():
        for model in (target, module):
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=generator)
                spread = 0.3 if parameter.dim() == 1 else 1.5 / parameter.shape[-1] ** 0.5
                parameter.copy_(spread * noise + (around if "norm" in name else 0.0))
        for layer in module.layers[1:]:
            for shared in ("eh_proj", "enorm", "hnorm", "post_norm"):
                getattr(layer, shared).load_state_dict(getattr(module.layers[0], shared).state_dict())
    return Oracle(target, module)


def tensors(oracle: Oracle, *, fused_experts: bool = True) -> dict[str, Tensor]:
    """The module under the names of the files."""
    names = {"eh_proj": "fc", "enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "post_norm": "norm"}
    found = {}
    for index, layer in enumerate(oracle.module.layers):
        for own, shared in names.items():
            found[f"mtp.{shared}.weight"] = getattr(layer, own).weight.detach()
        for name, tensor in layer.mtp_block.state_dict().items():
            for key, each in _experts(name, tensor, fused_experts):
                found[f"mtp.layers.{index}.{key}"] = each
    return {name: tensor.clone().contiguous() for name, tensor in found.items()}


def _experts(name: str, tensor: Tensor, fused: bool) -> list[tuple[str, Tensor]]:
    if fused or ".experts." not in name:
        return [(name, tensor)]
    stem, _, kind = name.rpartition(".")
    kinds = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else [kind]
    return [
        (f"{stem}.{expert}.{each}.weight", part)
        for expert, weight in enumerate(tensor)
        for each, part in zip(kinds, weight.chunk(len(kinds)), strict=True)
    ]


def write_target(folder: Path, oracle: Oracle, **options) -> None:
    """A target's checkpoint that has the module inside."""
    oracle.target.save_pretrained(folder)
    edit_tensors(folder, lambda found: found | tensors(oracle, **options))


def edit_tensors(folder: Path, edit) -> None:
    path = folder / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(edit(found), path, metadata={"format": "pt"})


def edit_config(folder: Path, **values) -> None:
    """Of the text model, where the target sees images too. None drops a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config.get("text_config", config)
    text.update(values)
    for key in [key for key, value in values.items() if value is None]:
        del text[key]
    path.write_text(json.dumps(config))


def tokens(count: int, seed: int = 0, vocab_size: int = SIZES["vocab_size"]) -> list[int]:
    return torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def write_own(folder: Path, oracle: Oracle, *, layers: int, fused_experts: bool = True, **config) -> None:
    """The module in a folder of its own. Sizes are those of the target."""
    folder.mkdir()
    plain = oracle.target.config.get_text_config().to_dict()
    norm_form = "w" if plain["model_type"] in PLAIN_NORMS else "1+w"
    own = {
        "architectures": ["MtpDraftModel"],
        "mtp_num_hidden_layers": layers,
        "mtp_norm_form": norm_form,
        "mtp_input_order": "embedding_first",
        "mtp_hidden_state": "post_norm",
    }
    (folder / "config.json").write_text(json.dumps(plain | own | config, default=str))
    save_file(tensors(oracle, fused_experts=fused_experts), folder / "model.safetensors")


def borrowed(
    folder: Path, *, dtype: torch.dtype = torch.float32, vocab_size: int = SIZES["vocab_size"], **options
) -> Borrowed:
    return Borrowed.read(folder, dtype=dtype, vocab_size=vocab_size, **options)


class Fed:
    """One sequence of a drafter, fed with what the oracle's target makes of its ids."""

    def __init__(self, drafter: MtpDrafter, oracle: Oracle, ids: Sequence[int], **opening) -> None:
        self.drafter, self.oracle, self.ids = drafter, oracle, list(ids)
        self.hidden_TH = oracle.hidden(ids)
        opened = Opening(first_id=ids[0], max_positions=1000, final_hidden=True, **opening)
        self.context = drafter.open(opened)

    def feed(self, *ends: int) -> "Fed":
        """Positions up to each of `ends`, a feed for each."""
        for end in ends:
            start = self.context.fed
            taps = self.hidden_TH[start:end, None].contiguous()
            data = TensorBytes("fp32", tuple(taps.shape), taps.numpy().tobytes())
            self.drafter.absorb(self.context, Feed(start, self.ids[start + 1 : end + 1], data))
        return self

    def draft(self, count: int) -> Draft:
        return self.drafter.draft([Ask(self.context, count)])[0]

    def expected(self, count: int, *, end: int | None = None) -> tuple[list[int], Tensor]:
        """What the oracle drafts from the same ids and states, all of it computed again."""
        end = self.context.fed if end is None else end
        return self.oracle.draft(self.ids[: end + 1], self.hidden_TH[:end], count)
