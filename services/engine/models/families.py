"""The families that can be served, by the `model_type` of config.json."""

from services.engine.models.llama import LlamaConfig
from services.engine.models.trunk import Architecture
from services.engine.weights.config import Keys

FAMILIES = {"llama": LlamaConfig}


def architecture(keys: Keys) -> Architecture:
    """Raises BadCheckpoint for a family, a quantisation or a setting that cannot be served."""
    family = FAMILIES[keys.one_of("model_type", tuple(FAMILIES))]
    if "quantization_config" in keys:
        raise keys.wrong("quantization_config", "absent: quantised checkpoints cannot be served")
    return family.read(keys)
