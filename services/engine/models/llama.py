"""The Llama family: a head may have a size of its own, and every linear may have a bias."""

from services.engine.models.design import Design
from services.engine.ops.attention import Heads
from services.engine.weights.config import Keys


def llama(keys: Keys) -> Design:
    query = keys.integer("num_attention_heads")
    heads = Heads(
        query=query,
        kv=keys.integer("num_key_value_heads", query),
        dim=keys.integer("head_dim", max(keys.integer("hidden_size") // query, 1)),
    )
    return Design.read(keys, heads, mlp_bias=keys.flag("mlp_bias", False))
