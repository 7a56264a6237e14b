"""The dense Qwen3 family: Llama with query and key heads that are normalised, and no bias in the MLP.

Checkpoints may ask for attention over a window of the last positions from some layer on; no published one of these
sizes does, and none that does is served.
"""

from services.engine.models.design import Design
from services.engine.ops.attention import Heads
from services.engine.weights.config import Keys

WHOLE = "full_attention"


def qwen3(keys: Keys) -> Design:
    heads = Heads(
        query=keys.integer("num_attention_heads"),
        kv=keys.integer("num_key_value_heads"),
        dim=keys.integer("head_dim"),
    )
    _refuse_windows(keys, keys.integer("num_hidden_layers"))
    return Design.read(keys, heads, head_norms=True)


def _refuse_windows(keys: Keys, layers: int) -> None:
    """Raises BadCheckpoint if a layer slides: one that `layer_types` names so or, without that list, one from
    `max_window_layers` on. A window that is switched off is none."""
    if "layer_types" in keys:
        if keys.texts("layer_types") != (WHOLE,) * layers:
            raise keys.wrong("layer_types", f"{WHOLE} for each of num_hidden_layers, {layers}: no layer may slide")
        return
    windows = keys.flag("use_sliding_window", False) and "sliding_window" in keys
    if windows and keys.integer("max_window_layers", 0, least=0) < layers:
        raise keys.wrong("use_sliding_window", f"false, or max_window_layers at least {layers}: no layer may slide")
