"""The drafters that come with the embedded model, as package data."""

import json
import logging
from pathlib import Path

from services.shipped.embedded import SMOLLM2
from services.text.files import TokenizerFiles

ROOT = Path(__file__).parent / "drafters" / SMOLLM2.name
NGRAM = ROOT / "ngram"

log = logging.getLogger(__name__)


def drafter_flags(model: Path) -> dict[str, str]:
    """Settings of the drafter that speculates for the embedded model in `model`. A table of ids is of use only while
    the tokenizer is the one it was made with; a converted one may change with the library that wrote it."""
    made_with = json.loads((NGRAM / "config.json").read_bytes())["tokenizer_hash"]
    if TokenizerFiles.read(model).hash != made_with:
        log.warning("the shipped n-gram table was made with another tokenizer than that of %s; it is not used", model)
        return {}
    return {"ngram_table": str(NGRAM)}
