"""Which of the formats a folder is in, and its recipe."""

from pathlib import Path

from services.drafter.checkpoints import native, speculators, zlab
from services.drafter.checkpoints.recipe import Recipe
from services.drafter.checkpoints.variants import refuse_variants
from services.engine.weights.config import Keys

CONFIG = "config.json"


def read_recipe(folder: Path) -> Recipe:
    """Raises BadCheckpoint for a config.json that is of no format, or of a variant that cannot be served."""
    keys = Keys.read(folder / CONFIG)
    refuse_variants(keys, folder)
    if "speculators_model_type" in keys:
        return speculators.read(keys)
    if "model_type" in keys and keys.text("model_type") == native.MODEL_TYPE:
        return native.read(keys)
    named, nested = keys.texts("architectures"), keys.table("dflash_config")
    if "DFlash2DraftModel" in named or "selector_rank" in nested or "conv_kernel_size" in nested:
        return zlab.read(keys, 2)
    if "DFlashDraftModel" in named or "dflash_config" in keys:
        return zlab.read(keys, 1)
    raise keys.wrong("architectures", "DFlashDraftModel or DFlash2DraftModel, or the key speculators_model_type there")
