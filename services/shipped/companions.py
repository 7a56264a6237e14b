"""The drafters that come with the embedded model."""

import json
import logging
from pathlib import Path

from services.shipped.embedded import SMOLLM2
from services.text.files import TokenizerFiles

ROOT = Path(__file__).parent / "drafters" / SMOLLM2.name
MODELS = ("mtp", "dflash", "dflash2")
NGRAM = ROOT / "ngram"

log = logging.getLogger(__name__)


def companions(model: Path) -> dict[str, Path]:
    """Their folders, by the setting of the drafter that names them, for the embedded model in `model`.

    A table of ids is of use only while the tokenizer is the one it was made with; a converted tokenizer may change with
    the library that wrote it."""
    folders = {mode: ROOT / mode for mode in MODELS if (ROOT / mode).is_dir()}
    made_with = json.loads((NGRAM / "config.json").read_bytes())["tokenizer_hash"]
    if TokenizerFiles.read(model).hash == made_with:
        return folders | {"ngram_table": NGRAM}
    log.warning("the shipped n-gram table was made with another tokenizer than that of %s; it is not used", model)
    return folders
