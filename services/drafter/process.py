"""The drafter as a program."""

import logging
from pathlib import Path

from services.config.settings import MODELS, DrafterSettings
from services.drafter.drafting import Drafting
from services.drafter.interface import AnyDrafter
from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import NgramTable
from services.drafter.servicer import DrafterServicer
from services.wire.ring import tap_folder
from services.wire.serving import announce, drafter_service, serving, stop_requested

log = logging.getLogger(__name__)


async def run(settings: DrafterSettings) -> None:
    """Serve until SIGTERM or SIGINT, then answer the turns that were received and end.

    Raises BadCheckpoint or BadConfig before the port opens."""
    taps = tap_folder(settings.tap_dir)
    drafters = load(settings)
    with Drafting.of(drafters, max_contexts=settings.max_contexts) as drafting:
        service = drafter_service(DrafterServicer(drafting, taps))
        async with serving(settings.listen, [service], grace_s=settings.grace_s) as server:
            await server.ready()
            announce("drafter", server.address)
            log.info("drafter %s serves %s on %s", drafting.instance, ", ".join(settings.loaded), server.address)
            await stop_requested()
            await server.draining()
            drafting.drain()


def load(settings: DrafterSettings) -> list[AnyDrafter]:
    """The drafters of all modes that are set."""
    drafters: list[AnyDrafter] = []
    if "ngram" in settings.loaded:
        drafters.append(
            NgramDrafter(
                shortest=settings.ngram_min,
                longest=settings.ngram_max,
                default_draft_tokens=settings.ngram_draft_tokens,
                table=NgramTable.read(settings.ngram_table) if settings.ngram_table else None,
            )
        )
        if settings.ngram_table:
            log.info("loaded ngram from %s", settings.ngram_table)
    folders: dict[str, Path] = {mode: getattr(settings, mode) for mode in settings.loaded if mode in MODELS}
    if folders:
        from services.drafter.loading import load_models  # torch, for which n-grams need not wait

        assert settings.model is not None
        drafters += load_models(
            folders,
            model=settings.model,
            draws={"mtp": settings.mtp_draws, "dflash": settings.dflash_draws, "dflash2": settings.dflash2_draws},
            dtype=settings.dtype,
            threads=settings.threads,
            draft_vocab=settings.draft_vocab,
        )
    return drafters
