"""The target program: checks the model, opens the port, loads, serves, drains."""

import asyncio
import logging
import uuid
from functools import partial

import torch
from tandem.v1.drafter_pb2 import Hello
from tandem.v1.target_pb2 import Limits
from tandem.v1.types_pb2 import Sampling

from services.config.folders import cache_root
from services.config.settings import TargetSettings
from services.engine.engine import Engine
from services.target.admission import Admission
from services.target.background import background
from services.target.defaults import default_sampling
from services.target.encode import Exactness
from services.target.link.link import DrafterLink, Patience
from services.target.policies import policy
from services.target.policy.bands import Band
from services.target.policy.gate import GateRules
from services.target.policy.rules import PolicyRules
from services.target.rounds import Rounds
from services.target.scheduler import Bounds
from services.target.servicer import Servicer, Serving
from services.target.steering import Steering
from services.target.taps.ring_file import sweep
from services.target.taps.sharing import Sharing
from services.target.taps.taps import Taps
from services.target.worker import Worker
from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.wire.codec import DATA_TYPES, DRAFT_PROTOCOL_VERSION
from services.wire.ring import tap_folder
from services.wire.serving import announce, serving, stop_requested, target_service

log = logging.getLogger(__name__)

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


async def run(settings: TargetSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raises BadCheckpoint or BadConfig before the port opens."""
    files = TokenizerFiles.read(settings.model)
    tokenizer = Tokenizer(files)
    defaults = default_sampling(files)
    if ChatTemplate.of(files) is None:
        log.warning("%s has no chat template; chats will be refused", settings.model)
    Engine.check(settings.model)
    folder = tap_folder(settings.tap_dir)
    if folder is not None:
        sweep(folder)
    servicer, worker = Servicer(), Worker()
    stop = asyncio.create_task(stop_requested())
    # What runs in the background outlives the drain: running sequences still need their rounds.
    async with (
        background() as start,
        serving(settings.listen, [target_service(servicer)], grace_s=settings.grace_s) as server,
    ):
        announce("target", server.address)
        engine = await worker.run(partial(load, settings, tokenizer))
        taps = Taps(size=settings.tap_bytes, hidden_size=engine.hidden_size, dtype=engine.dtype)
        sharing = Sharing(taps, worker, folder)
        link = DrafterLink(settings.drafter, _hello(settings, engine, files), _patience(settings), taps, sharing)
        rules = _rules(settings)
        steering = Steering(policy(settings.policy, rules), rules, link)
        rounds = Rounds(engine, tokenizer, link, worker, _bounds(settings), steering)
        servicer.serving = Serving(
            rounds=rounds,
            link=link,
            admission=_admission(settings, engine, tokenizer, files.hash, defaults),
            exactness=Exactness(engine.numerics.exact, engine.numerics.reason, engine.numerics.fingerprint),
            files=files,
            dtype=settings.dtype,
        )
        running = [start(rounds.run()), start(link.run())]
        await server.ready()
        done, _ = await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    worker.close()


def load(settings: TargetSettings, tokenizer: Tokenizer) -> Engine:
    """The engine that the settings ask for. What it measures of a model whose folder cannot be written is kept in the
    user's cache."""
    return Engine.load(
        settings.model,
        dtype=DTYPES[settings.dtype],
        threads=settings.threads,
        cache_rows=settings.cache_rows,
        max_sequences=settings.max_sequences,
        vocab_size=tokenizer.vocab_size,
        context=settings.context,
        cache=cache_root(),
        progress=Progress(),
    )


class Progress:
    """Says in the log how far loading is: when a stage begins, and at each further quarter of it."""

    def __init__(self) -> None:
        self._said: tuple[str, int] | None = None

    def __call__(self, stage: str, done: float) -> None:
        quarter = (stage, int(done * 4))
        if quarter != self._said:
            self._said = quarter
            log.info("loading: %s %d %%", stage, 25 * quarter[1])


def _admission(
    settings: TargetSettings, engine: Engine, tokenizer: Tokenizer, tokenizer_hash: str, defaults: Sampling
) -> Admission:
    return Admission(
        model=settings.model_name or settings.model.resolve().name,
        tokenizer_hash=tokenizer_hash,
        vocab_size=engine.vocab_size,
        # A sequence that could never be admitted would wait for ever.
        context=min(engine.context, settings.cache_rows),
        stop_ids=tokenizer.stop_ids,
        defaults=defaults,
        limits=Limits(
            max_stop_strings=settings.max_stop_strings,
            max_stop_string_chars=settings.max_stop_string_chars,
            max_logprobs=settings.max_logprobs,
            max_logit_bias=settings.max_logit_bias,
            max_draft_tokens=settings.max_draft_tokens,
        ),
    )


def _hello(settings: TargetSettings, engine: Engine, files: TokenizerFiles) -> Hello:
    return Hello(
        protocol_version=DRAFT_PROTOCOL_VERSION,
        target_instance=uuid.uuid4().hex,
        weights_fingerprint=engine.weights_hash,
        tokenizer_hash=files.hash,
        vocab_size=engine.vocab_size,
        hidden_size=engine.hidden_size,
        layers=engine.layers,
        dtype=DATA_TYPES.value(settings.dtype),
    )


def _patience(settings: TargetSettings) -> Patience:
    return Patience(
        first_s=settings.first_draft_timeout_ms / 1e3,
        most_s=settings.draft_timeout_ms / 1e3,
        misses=settings.breaker_misses,
        rest_s=settings.breaker_rest_s,
    )


def _rules(settings: TargetSettings) -> PolicyRules:
    return PolicyRules(
        bands=tuple(Band(each.start, each.end, each.modes) for each in settings.bands),
        hysteresis=settings.band_hysteresis,
        probe_share=settings.probe_share,
        acceptance_floor=settings.acceptance_floor,
        acceptance_drafts=settings.acceptance_floor_drafts,
        gate=GateRules(
            grace=settings.gate_grace,
            first=settings.gate_probe_first,
            most=settings.gate_probe_most,
            refresh=settings.gate_refresh,
        ),
    )


def _bounds(settings: TargetSettings) -> Bounds:
    return Bounds(
        max_sequences=settings.max_sequences,
        max_waiting=settings.queue,
        prefill_chunk=settings.prefill_chunk,
        round_tokens=settings.round_tokens,
    )
