"""The families that can be served, by the `model_type` of config.json."""

from services.engine.models.llama import llama
from services.engine.models.qwen3 import qwen3
from services.engine.models.trunk import Architecture
from services.engine.weights.config import Keys

FAMILIES = {"llama": llama, "qwen3": qwen3}


def architecture(keys: Keys) -> Architecture:
    """Raises BadCheckpoint for a family, a quantisation or a setting that cannot be served."""
    family = FAMILIES[keys.one_of("model_type", tuple(FAMILIES))]
    if "quantization_config" in keys:
        raise keys.wrong("quantization_config", "absent: quantised checkpoints cannot be served")
    return family(keys)
