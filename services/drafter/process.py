"""The drafter as a program."""

import logging

from services.config.settings import DrafterSettings
from services.drafter.drafting import Drafting
from services.drafter.interface import AnyDrafter
from services.drafter.ngram import NgramDrafter
from services.drafter.ngram_table import NgramTable
from services.drafter.servicer import DrafterServicer
from services.errors import BadConfig
from services.wire.serving import announce, drafter_service, serving, stop_requested

log = logging.getLogger(__name__)


async def run(settings: DrafterSettings) -> None:
    """Serve until SIGTERM or SIGINT, then answer the turns that were received and end."""
    drafters = [load(mode, settings) for mode in settings.modes]
    with Drafting.of(drafters, max_contexts=settings.max_contexts) as drafting:
        service = drafter_service(DrafterServicer(drafting))
        async with serving(settings.listen, [service], grace_s=settings.grace_s) as server:
            await server.ready()
            announce("drafter", server.address)
            log.info("drafter %s serves %s on %s", drafting.instance, ", ".join(settings.modes), server.address)
            await stop_requested()
            await server.draining()
            drafting.drain()


def load(mode: str, settings: DrafterSettings) -> AnyDrafter:
    """The drafter of a mode."""
    match mode:
        case "ngram":
            return NgramDrafter(
                shortest=settings.ngram_min,
                longest=settings.ngram_max,
                default_draft_tokens=settings.ngram_draft_tokens,
                table=NgramTable.read(settings.ngram_table) if settings.ngram_table else None,
            )
        case _:
            raise BadConfig(f"modes: this version has no drafter for {mode}")
