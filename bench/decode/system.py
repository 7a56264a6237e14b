"""`tandem serve` with the drafters to be measured, and which of them it says it has."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tandem.v1.generation_pb2 import DescribeRequest
from tandem.v1.generation_pb2_grpc import GenerationServiceStub

from bench.client import TIMEOUT_S, ask, asking
from bench.command import Options
from bench.decode.options import Wanted
from bench.machine import openmp
from services.config.folders import cache_root
from services.config.settings import MODELS, TargetSettings
from services.config.sources import variable
from services.errors import BadCheckpoint
from services.shipped.companions import companions
from services.shipped.prepare import default_model
from services.target.request import DRAFTED_MODES
from services.wire.codec import MODES
from tests.system.running import Tandem, tandem

DRAFTERS_UP_S = 60
MOST_SEQUENCES = TargetSettings.model_fields["max_sequences"].get_default()


@contextmanager
def serving(options: Options, wanted: Wanted) -> Iterator[tuple[GenerationServiceStub, Sequence[str]]]:
    """A client of a running system, and the modes to measure: `none` first."""
    settings = drafter_settings(options.model, wanted.drafters) | {"threads": str(options.threads)}
    environment = openmp(options.threads) | {variable("drafter", name): value for name, value in settings.items()}
    flags = (f"--threads={options.threads}", f"--max-sequences={max(MOST_SEQUENCES, *wanted.batches)}")
    with tandem(options.model, *flags, environment=environment) as system, system.stub() as stub:
        yield stub, chosen(wanted.modes, _loaded(system, stub))


def drafter_settings(model: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Of the drafter: what is given, and for the rest what ships with the embedded model, where it is that."""
    try:
        embedded = default_model(cache_root())
    except BadCheckpoint:
        embedded = None
    shipped = companions(model) if model.resolve() == embedded else {}
    settings = {name: str(folder) for name, folder in shipped.items()} | given
    return settings | ({"model": str(model.absolute())} if settings.keys() & set(MODELS) else {})


def chosen(asked: Sequence[str] | None, loaded: Sequence[str]) -> list[str]:
    """`none`, the drafters and `auto`, in that order; SystemExit when one was asked for that is not loaded."""
    known = ["none", *(mode for mode in reversed(DRAFTED_MODES) if mode in loaded), "auto"]
    if absent := [mode for mode in asked or () if mode not in known]:
        raise SystemExit(f"--modes: {', '.join(absent)} not loaded; there are {', '.join(known)}")
    return [mode for mode in known if asked is None or mode in ("none", *asked)]


def _loaded(system: Tandem, stub: GenerationServiceStub) -> list[str]:
    """Drafters that the target reports. It serves before they are there, so it is asked again after a plain token."""
    deadline = time.monotonic() + DRAFTERS_UP_S
    while time.monotonic() < deadline:
        drafters = stub.Describe(DescribeRequest(), timeout=TIMEOUT_S).target.drafters
        if refused := [f"{MODES.name(each.mode)}: {each.refusal}" for each in drafters if each.refusal]:
            raise SystemExit(f"drafters were refused: {'; '.join(refused)}")
        if drafters and all(each.up for each in drafters):
            return [MODES.name(each.mode) for each in drafters]
        ask(stub, asking([0], 1))
    raise SystemExit(f"no drafter came up within {DRAFTERS_UP_S} s:\n{''.join(system.log[-20:])}")
