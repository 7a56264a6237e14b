"""Which of the drafters that come with the embedded model are loaded for it."""

import json
import logging
from pathlib import Path

from services.shipped.embedded import SMOLLM2
from services.text.files import TokenizerFiles

ROOT = Path(__file__).parent / "drafters" / SMOLLM2.name
NGRAM = ROOT / "ngram"
MODELS = ("mtp", "dflash", "dflash2")
DRAFT_VOCAB = ROOT / "draft_vocab.json"

log = logging.getLogger(__name__)


def drafter_flags(model: Path) -> dict[str, str]:
    """Settings of the drafter that speculates for the embedded model in `model`, for the drafters that are there.

    A table of ids is of use only while the tokenizer is the one it was made with; a converted tokenizer may change with
    the library that wrote it."""
    flags = {mode: str(ROOT / mode) for mode in MODELS if (ROOT / mode).is_dir()}
    if flags:
        flags["model"] = str(model)
        if DRAFT_VOCAB.is_file():
            flags["draft_vocab"] = str(DRAFT_VOCAB)
    made_with = json.loads((NGRAM / "config.json").read_bytes())["tokenizer_hash"]
    if TokenizerFiles.read(model).hash == made_with:
        return flags | {"ngram_table": str(NGRAM)}
    log.warning("the shipped n-gram table was made with another tokenizer than that of %s; it is not used", model)
    return flags
