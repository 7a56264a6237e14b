"""Multi-token-prediction modules: what the config.json of a folder says about its `mtp.*` tensors.

Two kinds of folder have them. A **target's** own checkpoint, as Qwen3-Next and Qwen3.5 publish it: the module's layers
have the form of the target's full-attention layers, and what the file does not say follows from the family. And a
folder **of its own**, whose config.json has `"architectures": ["MtpDraftModel"]`, the `model_type` and sizes of a
target, and three keys that a target's file does not need:

    mtp_norm_form      "w" or "1+w": what a norm multiplies by
    mtp_input_order    "embedding_first" or "hidden_first": the halves of what `mtp.fc` reads
    mtp_hidden_state   "post_norm": the target's state is taken after its final norm

All three have to be there: with a wrong one drafts are merely bad, and nobody would see why.
"""

from dataclasses import dataclass
from pathlib import Path

from services.drafter.borrowed import Borrowed
from services.engine.models.rope import read_partial_rope
from services.engine.ops.attention import Heads
from services.engine.ops.rope import Rope
from services.engine.weights.checkpoint import Checkpoint
from services.engine.weights.config import Keys
from services.errors import BadCheckpoint

ARCHITECTURE = "MtpDraftModel"
PREFIX = "mtp."
ROUTER = "mtp.layers.0.mlp.gate.weight"
COUNTS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the decoder layers of a family are like beyond the numbers of config.json.

    `gated`: queries come with a gate for what they gather. `plus_one`: norms multiply by 1 + w. `rotated`: the leading
    share of a head that turns, unless the file says another. `sparse`: experts in the MLP; None: in some files."""

    head_norms: bool = False
    gated: bool = False
    plus_one: bool = False
    rotated: float = 1.0
    sparse: bool | None = False


def _gated(sparse: bool | None) -> Form:
    return Form(head_norms=True, gated=True, plus_one=True, rotated=0.25, sparse=sparse)


FORMS = {
    "llama": Form(),
    "qwen3": Form(head_norms=True),
    "qwen3_next": _gated(None),
    "qwen3_5": _gated(False),
    "qwen3_5_text": _gated(False),
    "qwen3_5_moe": _gated(True),
    "qwen3_5_moe_text": _gated(True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`chosen` of `count` MLPs of width `size` for each row, beside one of width `shared` for all. `normalised`: the
    weights of the chosen add up to one."""

    count: int
    chosen: int
    size: int
    shared: int
    normalised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpRecipe:
    """A module, whatever it was read from. `rotated` counts dimensions of a head, `mlp` is the width of a dense one,
    `target_layers` those of the target that it was made for."""

    own: bool
    layers: int
    target_layers: int | None
    hidden_size: int
    vocab_size: int
    context: int
    heads: Heads
    head_norms: bool
    gated: bool
    attention_bias: bool
    mlp_bias: bool
    mlp: int | Experts
    eps: float
    rope: Rope
    rotated: int
    plus_one: bool
    hidden_first: bool


def read(folder: Path) -> tuple[MtpRecipe, Checkpoint]:
    """Raises BadCheckpoint for a folder without a module, and for a form that cannot be drafted with."""
    root = Keys.read(folder / "config.json")
    text = root.table("text_config") if "text_config" in root else root
    checkpoint = Checkpoint.open(folder)
    if not checkpoint.has(PREFIX):
        raise BadCheckpoint(
            f"it has no tensors named {PREFIX}*: this checkpoint comes without a multi-token-prediction module"
        )
    own = ARCHITECTURE in root.texts("architectures")
    form = FORMS[(text if "model_type" in text else root).one_of("model_type", tuple(FORMS))]
    return _recipe(text, form, own=own, sparse=_sparse(form, checkpoint)), checkpoint


def check_fit(recipe: MtpRecipe, target: Borrowed) -> None:
    """Raises BadCheckpoint with both numbers."""
    if recipe.hidden_size != target.hidden_size:
        raise BadCheckpoint(f"hidden_size is {recipe.hidden_size}, the target's is {target.hidden_size}")
    if recipe.target_layers not in (None, target.layers):
        raise BadCheckpoint(f"it was made for a target of {recipe.target_layers} layers; this one has {target.layers}")
    if recipe.vocab_size < target.vocab_size:
        raise BadCheckpoint(f"vocab_size is {recipe.vocab_size}; the target's tokenizer has {target.vocab_size} ids")


def _sparse(form: Form, checkpoint: Checkpoint) -> bool:
    """Where files of a family differ, the tensors tell: Qwen3-Next's keys speak of the target's layers only."""
    return ROUTER in checkpoint if form.sparse is None else form.sparse


def _recipe(keys: Keys, form: Form, *, own: bool, sparse: bool) -> MtpRecipe:
    keys.one_of("hidden_act", ("silu",), "silu")
    for key in ("mtp_use_dedicated_embeddings", "use_sliding_window"):
        if keys.flag(key, False):
            raise keys.wrong(key, "false: a module with it cannot be drafted with")
    heads = _heads(keys)
    rope, share = read_partial_rope(keys, form.rotated)
    rotated = int(heads.dim * share)
    if not 0 < rotated <= heads.dim or rotated % 2:
        raise keys.wrong("partial_rotary_factor", f"such that an even part of {heads.dim} dimensions turns")
    return MtpRecipe(
        own=own,
        layers=_layers(keys),
        target_layers=keys.integer("num_hidden_layers") if "num_hidden_layers" in keys else None,
        hidden_size=keys.integer("hidden_size"),
        vocab_size=keys.integer("vocab_size"),
        context=keys.integer("max_position_embeddings"),
        heads=heads,
        head_norms=form.head_norms,
        gated=form.gated,
        attention_bias=keys.flag("attention_bias", False),
        mlp_bias=keys.flag("mlp_bias", False),
        mlp=_experts(keys) if sparse else keys.integer("intermediate_size"),
        eps=keys.number("rms_norm_eps"),
        rope=rope,
        rotated=rotated,
        plus_one=_plus_one(keys) if own else form.plus_one,
        hidden_first=_hidden_first(keys) if own else False,
    )


def _heads(keys: Keys) -> Heads:
    query, dim = keys.integer("num_attention_heads"), keys.integer("head_dim", _even_share(keys))
    kv = keys.integer("num_key_value_heads", query)
    if query % kv:
        raise keys.wrong("num_key_value_heads", f"a divisor of num_attention_heads, {query}")
    return Heads(query, kv, dim)


def _even_share(keys: Keys) -> int | None:
    """Llama files of old have no `head_dim`; all other families' have."""
    if "model_type" not in keys or keys.text("model_type") != "llama":
        return None
    return max(keys.integer("hidden_size") // keys.integer("num_attention_heads"), 1)


def _layers(keys: Keys) -> int:
    counts = [keys.integer(key) for key in COUNTS if key in keys]
    if len(set(counts)) > 1:
        raise keys.wrong(COUNTS[1], f"the same as {COUNTS[0]}, {counts[0]}")
    return counts[0] if counts else 1


def _experts(keys: Keys) -> Experts:
    experts = Experts(
        count=keys.integer("num_experts"),
        chosen=keys.integer("num_experts_per_tok"),
        size=keys.integer("moe_intermediate_size"),
        shared=keys.integer("shared_expert_intermediate_size"),
        normalised=keys.flag("norm_topk_prob", True),
    )
    if experts.chosen > experts.count:
        raise keys.wrong("num_experts_per_tok", f"at most num_experts, {experts.count}")
    return experts


def _plus_one(keys: Keys) -> bool:
    return keys.one_of("mtp_norm_form", ("w", "1+w")) == "1+w"


def _hidden_first(keys: Keys) -> bool:
    keys.one_of("mtp_hidden_state", ("post_norm",))
    return keys.one_of("mtp_input_order", ("embedding_first", "hidden_first")) == "hidden_first"
