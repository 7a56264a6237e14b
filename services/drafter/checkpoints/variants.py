"""Relatives of DFlash that share its names. Loaded as DFlash they would draft badly and nothing would fail, so what
tells them apart is refused, with the reason."""

from pathlib import Path

from services.engine.weights.config import Keys
from services.errors import BadCheckpoint

_SINKS = "attention with sinks and its own window (MiMo's drafters)"
_LATENT = "latent attention (Kimi's drafters)"

# Keys that mean something else by being there, at the top or in dflash_config.
KEYS = {
    "swa_window_size": _SINKS,
    "attention_value_scale": _SINKS,
    "projector_type": "another projector (Domino)",
    "kv_lora_rank": _LATENT,
    "q_lora_rank": _LATENT,
    "logit_scale": "scaled logits other than by output_multiplier",
    "causal": "a causality other than is_causal's",
}
# Keys that do so when they are true.
FLAGS = {
    "use_swa": _SINKS,
    "attention_sink_bias": _SINKS,
    "use_gemma_norm": "norms of Gemma's form",
    "has_own_lm_head": "a head of its own outside of the speculators format",
    "sample_from_anchor": "drafts from the anchor's row, one position further",
    "shift_label": "drafts that are shifted by a position",
}
# Keys that do so when they are false.
USUAL = {
    "is_neox_style": "rotary positions of interleaved pairs",
    "rope_is_neox_style": "rotary positions of interleaved pairs",
}
# Parts of tensors' names.
TENSORS = {
    "aux_hidden_norms": "a norm for each tap (Laguna's drafters)",
    "g_proj": "gated attention (Laguna's drafters)",
    "sink": _SINKS,
    "kv_a_proj": _LATENT,
    "qkv_proj": "fused projections (Laguna's drafters)",
    "mask_embedding": "a mask embedding of its own (MiMo's drafters)",
    "embed_tokens": "an embedding of its own (Nemotron's drafters)",
    "lm_head": "a head of its own without a map of ids",
    "fusion_": "weighted fusion of the taps",
}
MASK_EMBEDDING = "mask_embedding.pt"


def refuse_variants(keys: Keys, folder: Path) -> None:
    """Raises BadCheckpoint."""
    if "quantization_config" in keys:
        raise keys.wrong("quantization_config", "absent: quantised drafters cannot be read")
    if (folder / MASK_EMBEDDING).exists():
        raise BadCheckpoint(f"{folder / MASK_EMBEDDING}: {_unsupported(TENSORS['mask_embedding'])}")
    for place in (keys, keys.table("dflash_config"), keys.table("transformer_layer_config")):
        for key, what in KEYS.items():
            if key in place:
                raise place.wrong(key, f"absent: {_unsupported(what)}")
        for names, usual in ((FLAGS, False), (USUAL, True)):
            for key, what in names.items():
                if place.flag(key, usual) is not usual:
                    raise place.wrong(key, f"absent or {str(usual).lower()}: {_unsupported(what)}")


def refuse_tensor(name: str) -> bool:
    """False for a tensor that is merely unknown; raises BadCheckpoint for one that tells a variant."""
    for part, what in TENSORS.items():
        if part in name:
            raise BadCheckpoint(f"it has {name}: {_unsupported(what)}")
    return False


def _unsupported(what: str) -> str:
    return f"{what} is not supported"
