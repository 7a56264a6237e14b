"""A DFlash drafter as its config.json describes it, whatever the format: every difference between formats ends here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from services.engine.models.rope import read_rope
from services.engine.ops.attention import Heads
from services.engine.ops.rope import Rope
from services.engine.weights.config import Keys

# More of either is no drafter but a mistake, and would cost memory before it was found out.
MOST_LAYERS, LARGEST_BLOCK = 256, 256

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Reach:
    """What a row of a layer sees beside itself. A window counts the row; without `causal` it reaches ahead as well."""

    window: int | None = None
    causal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The sizes of the layers, all of which have Qwen3's form. `vocab_size`: the ids the drafter was made for."""

    hidden_size: int
    mlp_size: int
    layers: int
    heads: Heads
    eps: float
    rope: Rope
    attention_bias: bool
    vocab_size: int | None
    context_length: int | None

    @classmethod
    def read(cls, keys: Keys) -> Self:
        """Nothing that a class of some library would fill in is assumed: defaults differ from class to class."""
        keys.one_of("hidden_act", ("silu",), "silu")
        heads = Heads(
            keys.integer("num_attention_heads"), keys.integer("num_key_value_heads"), keys.integer("head_dim")
        )
        if heads.query % heads.kv:
            raise keys.wrong("num_key_value_heads", f"a divisor of num_attention_heads, {heads.query}")
        if heads.dim % 2:
            raise keys.wrong("head_dim", "an even number")
        if "rope_theta" not in keys and "rope_theta" not in keys.table("rope_parameters"):
            raise keys.wrong("rope_theta", "a positive number, here or in rope_parameters")
        layers = keys.integer("num_hidden_layers")
        if layers > MOST_LAYERS:
            raise keys.wrong("num_hidden_layers", f"at most {MOST_LAYERS}")
        return cls(
            hidden_size=keys.integer("hidden_size"),
            mlp_size=keys.integer("intermediate_size"),
            layers=layers,
            heads=heads,
            eps=keys.number("rms_norm_eps"),
            rope=read_rope(keys),
            attention_bias=keys.flag("attention_bias", False),
            vocab_size=keys.integer("vocab_size") if "vocab_size" in keys else None,
            context_length=keys.integer("max_position_embeddings") if "max_position_embeddings" in keys else None,
        )


@dataclass(frozen=True, slots=True)
class Conv:
    """Taps of a grouped dynamic convolution, and the channels that share a dynamic kernel."""

    taps: int
    group: int

    @classmethod
    def read(cls, keys: Keys, hidden_size: int) -> Self:
        conv = cls(keys.integer("conv_kernel_size"), keys.integer("conv_group_size"))
        if hidden_size % conv.group:
            raise keys.wrong("conv_group_size", f"a divisor of hidden_size, {hidden_size}")
        return conv


@dataclass(frozen=True, slots=True)
class Selector:
    """Rank of the bigram scores, and how many candidates of each row are scored."""

    rank: int
    candidates: int

    @classmethod
    def read(cls, keys: Keys) -> Self:
        return cls(keys.integer("selector_rank"), keys.integer("selector_top_k"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`taps[k]` is the target layer, 0-based, whose output is the k-th part of a context feature.

    `target_layers`: of the target it was made for, if the file says so. `draft_vocab_size`: rows of a head of the
    drafter's own, if it has one. `may_embed`: its file may hold an embedding. `encoder_names`: transformers' own names
    of the context projection."""

    version: Literal[1, 2]
    body: Body
    reach: tuple[Reach, ...]
    block_size: int
    mask_id: int
    taps: tuple[int, ...]
    target_layers: int | None = None
    draft_vocab_size: int | None = None
    multiplier: float = 1.0
    softcap: float | None = None
    embedding_scale: float = 1.0
    conv: Conv | None = None
    selector: Selector | None = None
    may_embed: bool = False
    encoder_names: bool = False


def read_block_size(keys: Keys, default: int) -> int:
    size = keys.integer("block_size", default)
    if not 2 <= size <= LARGEST_BLOCK:
        raise keys.wrong("block_size", f"from 2, an anchor and a draft, to {LARGEST_BLOCK}")
    return size


def read_reach(
    keys: Keys, layers: int, *, kinds: Sequence[str], causal: bool | None, sliding_causal: bool
) -> list[Reach]:
    """The layers' kinds, as listed in `layer_types` if it is there, with their windows.

    `causal` holds for all of them; where it is None only windowed layers are causal, if `sliding_causal`. A window
    counts even where `use_sliding_window` is false: that key is about kinds that were derived, not listed."""
    listed = keys.texts("layer_types") or kinds
    if len(listed) != layers or not set(listed) <= {FULL, SLIDING}:
        raise keys.wrong("layer_types", f"{layers} of {FULL} and {SLIDING}")
    reach = []
    for kind in listed:
        window = keys.integer("sliding_window") if kind == SLIDING else None
        reach.append(Reach(window, window is not None and sliding_causal if causal is None else causal))
    return reach
