"""The `mtp.*` tensors: their names, shapes and how they are stacked.

    mtp.fc.weight                      [H, 2H]  reads the next id's embedding and the state, each after its norm
    mtp.pre_fc_norm_embedding.weight   [H]
    mtp.pre_fc_norm_hidden.weight      [H]
    mtp.layers.{i}.*                   a decoder layer with full attention, named as the target's are
    mtp.norm.weight                    [H]      after every layer, before the target's head

Projection and norms are shared by all layers. A gated layer's q_proj has [query | gate] for each head.

Shape key: H hidden size, E experts, M width of an expert, 2M gate and up.
"""

import torch
from torch import Tensor

from services.drafter.checkpoints.mtp import PREFIX, Experts, MtpRecipe
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.fused import Fused

NORMS = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
LAYER_NORMS = ("input_layernorm", "post_attention_layernorm")
HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


def check(recipe: MtpRecipe, checkpoint: Checkpoint) -> None:
    """Raises BadCheckpoint unless the folder has exactly this module's tensors; a target's has its own besides."""
    hidden = (recipe.hidden_size,)
    shapes: dict[str, tuple[int, ...]] = {f"{PREFIX}{norm}.weight": hidden for norm in NORMS}
    shapes |= fc(recipe).tensors(PREFIX)
    for layer in range(recipe.layers):
        prefix = layer_prefix(layer)
        shapes |= {f"{prefix}{norm}.weight": hidden for norm in LAYER_NORMS}
        if recipe.head_norms:
            shapes |= {f"{prefix}{norm}.weight": (recipe.heads.dim,) for norm in HEAD_NORMS}
        shapes |= qkv(recipe).tensors(prefix) | out(recipe).tensors(prefix)
        if isinstance(recipe.mlp, Experts):
            shapes |= _sparse(recipe.mlp, recipe.hidden_size, checkpoint, f"{prefix}mlp.")
        else:
            mlp = recipe.mlp, recipe.hidden_size
            shapes |= gate_up(*mlp, bias=recipe.mlp_bias).tensors(f"{prefix}mlp.")
            shapes |= down(*mlp, bias=recipe.mlp_bias).tensors(f"{prefix}mlp.")
    checkpoint.check(shapes, ignored=lambda name: not (recipe.own or name.startswith(PREFIX)))


def layer_prefix(layer: int) -> str:
    return f"{PREFIX}layers.{layer}."


def fc(recipe: MtpRecipe) -> Fused:
    return Fused(parts={"fc": recipe.hidden_size}, width=2 * recipe.hidden_size)


def qkv(recipe: MtpRecipe) -> Fused:
    queries, keys = recipe.heads.query * recipe.heads.dim, recipe.heads.kv * recipe.heads.dim
    parts = {
        "self_attn.q_proj": 2 * queries if recipe.gated else queries,
        "self_attn.k_proj": keys,
        "self_attn.v_proj": keys,
    }
    return Fused(parts=parts, width=recipe.hidden_size, bias=recipe.attention_bias)


def out(recipe: MtpRecipe) -> Fused:
    width = recipe.heads.query * recipe.heads.dim
    return Fused(parts={"self_attn.o_proj": recipe.hidden_size}, width=width, bias=recipe.attention_bias)


def gate_up(size: int, hidden_size: int, *, bias: bool = False) -> Fused:
    return Fused(parts={"gate_proj": size, "up_proj": size}, width=hidden_size, bias=bias)


def down(size: int, hidden_size: int, *, bias: bool = False) -> Fused:
    return Fused(parts={"down_proj": hidden_size}, width=size, bias=bias)


def read_experts(experts: Experts, checkpoint: Checkpoint, prefix: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Gate and up [E, 2M, H], and down [E, H, M], from either way in which files hold them."""
    if _together(checkpoint, prefix):
        return checkpoint.read(f"{prefix}gate_up_proj", dtype), checkpoint.read(f"{prefix}down_proj", dtype)

    def each(part: str) -> Tensor:
        return torch.stack([checkpoint.read(f"{prefix}{e}.{part}.weight", dtype) for e in range(experts.count)])

    return torch.cat((each("gate_proj"), each("up_proj")), 1), each("down_proj")


def _sparse(experts: Experts, hidden: int, checkpoint: Checkpoint, prefix: str) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}gate.weight": (experts.count, hidden),
        f"{prefix}shared_expert_gate.weight": (1, hidden),
    }
    for fused in (gate_up(experts.shared, hidden), down(experts.shared, hidden)):
        shapes |= fused.tensors(f"{prefix}shared_expert.")
    if _together(checkpoint, f"{prefix}experts."):
        return shapes | {
            f"{prefix}experts.gate_up_proj": (experts.count, 2 * experts.size, hidden),
            f"{prefix}experts.down_proj": (experts.count, hidden, experts.size),
        }
    for expert in range(experts.count):
        for fused in (gate_up(experts.size, hidden), down(experts.size, hidden)):
            shapes |= fused.tensors(f"{prefix}experts.{expert}.")
    return shapes


def _together(checkpoint: Checkpoint, prefix: str) -> bool:
    return f"{prefix}gate_up_proj" in checkpoint
