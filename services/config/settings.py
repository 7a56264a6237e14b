"""The one table of settings: every name, default, bound and meaning, a class for each program.

Building one of these reads nothing but its arguments; `load` in `sources.py` merges flags, environment and file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from services.config.bands import WORDS, BandSetting, bands
from services.config.legal import Legal

# Stands for the folder that `tandem model prepare` makes; the command line puts that folder in its place.
EMBEDDED = Path("embedded")

DrafterMode = Literal["ngram", "mtp", "dflash", "dflash2"]
# Those that have a folder of weights.
MODELS: tuple[DrafterMode, ...] = ("mtp", "dflash", "dflash2")
Draws = Literal["argmax", "independent", "coupled"]


def _address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError("not an address")
    return value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _distinct(value: Sequence[str]) -> Sequence[str]:
    if not value or len(set(value)) < len(value):
        raise ValueError("empty or repeated")
    return value


TapFolder = Annotated[Path, Legal("a folder in a tmpfs, or `none`")]
Address = Annotated[str, AfterValidator(_address), Legal("HOST:PORT")]
File = Annotated[Path, Legal("a file")]
# Flags and the environment write a list with commas.
DrafterModes = Annotated[
    tuple[DrafterMode, ...],
    NoDecode,
    BeforeValidator(_split),
    AfterValidator(_distinct),
    Legal(f"one or more of {', '.join(get_args(DrafterMode))}, each once"),
]

Bands = Annotated[
    tuple[BandSetting, ...],
    NoDecode,
    BeforeValidator(lambda value: bands(value, get_args(DrafterMode))),
    Legal(WORDS),
]


class Settings(BaseModel):
    """Checked once, then never changed."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_not_one(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("a truth value is no number")
        return value


class TargetSettings(Settings):
    listen: Address = Field(default="127.0.0.1:0", description="gRPC address; port 0 takes a free one")
    model: Path = Field(default=EMBEDDED, description="Hugging Face folder, or `embedded`: the model that ships")
    model_name: str | None = Field(
        default=None, min_length=1, description="name clients use; default: the folder's name"
    )
    dtype: Literal["bf16", "fp32"] = Field(default="bf16", description="number format of weights and cache")
    threads: int | None = Field(default=None, ge=1, le=1024, description="threads that compute; default: the CPU quota")
    context: int | None = Field(
        default=None, ge=2, le=2**24, description="longest prompt + output; default: the model's"
    )
    cache_rows: int = Field(default=65536, ge=16, le=2**28, description="positions of all running sequences together")
    max_sequences: int = Field(default=64, ge=1, le=4096, description="sequences that run at once")
    queue: int = Field(default=64, ge=0, le=65536, description="sequences that may wait; more are refused with 429")
    prefill_chunk: int = Field(
        default=32, ge=1, le=2**20, description="prompt positions of one sequence computed in a round"
    )
    round_tokens: int = Field(default=256, ge=1, le=2**20, description="rows of all sequences computed in a round")
    drafter: Address | None = Field(default=None, description="gRPC address of the drafter; default: no speculation")
    draft_timeout_ms: float = Field(default=250, gt=0, le=60_000, description="longest wait for the drafts of a round")
    first_draft_timeout_ms: float = Field(
        default=2000, gt=0, le=60_000, description="the same while fewer than eight draft times are known"
    )
    breaker_misses: int = Field(
        default=5, ge=1, le=1000, description="unanswered rounds after which the drafter is left alone"
    )
    breaker_rest_s: float = Field(default=1.0, gt=0, le=3600, description="how long it is left alone")
    tap_bytes: int = Field(
        default=256 * 2**20,
        ge=2**20,
        le=2**40,
        description="memory for what drafters need of the model's layers; without room a sequence goes on undrafted",
    )
    tap_dir: TapFolder | None = Field(
        default=None, description="where it is shared with a drafter on this host; default: `/dev/shm`, if there is one"
    )
    policy: Literal["controller", "gate"] = Field(
        default="controller",
        description="who chooses drafters and lengths: for the whole batch by cost, or each request by itself",
    )
    bands: Bands = Field(
        default="0-20480:dflash2,dflash,mtp,ngram;20480-:mtp,ngram",  # type: ignore[arg-type]
        description="drafters that `auto` may use, best liked first, by tokens of prompt and output",
    )
    band_hysteresis: int = Field(
        default=256, ge=0, le=2**20, description="tokens behind the end of its band after which a request leaves it"
    )
    probe_share: float = Field(
        default=0.01, ge=0, le=0.5, description="part of a request's time that trying drafters out may cost"
    )
    acceptance_floor: float = Field(
        default=0.05, ge=0, le=1, description="part of its drafts that a drafter must get right, else it rests"
    )
    acceptance_floor_drafts: int = Field(default=128, ge=1, le=2**20, description="drafts after which that is judged")
    gate_grace: int = Field(default=3, ge=0, le=1000, description="rounds of a drafter that the gate does not judge")
    gate_probe_first: int = Field(
        default=32, ge=1, le=2**20, description="rounds without a drafter before it is tried again, at first"
    )
    gate_probe_most: int = Field(default=512, ge=1, le=2**20, description="they double up to this")
    gate_refresh: int = Field(
        default=48, ge=1, le=2**20, description="drafted rounds after which one without measures the clock anew"
    )
    max_draft_tokens: int = Field(default=15, ge=1, le=15, description="longest draft a request may ask for")
    max_stop_strings: int = Field(default=16, ge=0, le=1024, description="stop strings in a request")
    max_stop_string_chars: int = Field(default=256, ge=1, le=65536, description="characters in a stop string")
    max_logprobs: int = Field(default=20, ge=0, le=1024, description="alternatives a request may ask for at each token")
    max_logit_bias: int = Field(default=1024, ge=0, le=2**20, description="ids in a request's logit_bias")
    grace_s: float = Field(default=30, ge=0, le=3600, description="time for running sequences to end after SIGTERM")

    @model_validator(mode="after")
    def _first_before_most(self) -> Self:
        if self.gate_probe_first > self.gate_probe_most:
            raise ValueError(f"gate_probe_first must be at most gate_probe_most ({self.gate_probe_most})")
        return self


class DrafterSettings(Settings):
    listen: Address = Field(default="127.0.0.1:0", description="gRPC address; port 0 takes a free one")
    modes: DrafterModes | None = Field(
        default=None, description="drafters to load, with commas between; default: ngram, and all that have a folder"
    )
    max_contexts: int = Field(default=256, ge=1, le=2**20, description="sequences it drafts for at once")
    tap_dir: TapFolder | None = Field(
        default=None, description="where a target on this host shares taps; default: `/dev/shm`, if there is one"
    )
    ngram_min: int = Field(default=2, ge=1, le=64, description="shortest suffix that the n-gram drafter looks up")
    ngram_max: int = Field(default=8, ge=1, le=64, description="longest suffix that the n-gram drafter looks up")
    ngram_draft_tokens: int = Field(
        default=7, ge=1, le=15, description="drafts of the n-gram drafter when nobody asks otherwise"
    )
    ngram_table: Path | None = Field(
        default=None, description="folder of a table that goes on where the n-gram drafter finds nothing to look up"
    )
    model: Path | None = Field(
        default=None,
        description="the target's folder: drafters use its embedding and its head; `embedded`: the embedded model's, "
        "and the drafters that ship with it are loaded where other settings name none",
    )
    dflash: Path | None = Field(default=None, description="folder of a DFlash drafter")
    dflash2: Path | None = Field(default=None, description="folder of a DFlash2 drafter")
    mtp: Path | None = Field(
        default=None, description="folder with a multi-token-prediction module; it may be the target's own"
    )
    dflash_draws: Draws = Field(default="coupled", description="how DFlash draws at a temperature; see drafters.md")
    dflash2_draws: Draws = Field(default="coupled", description="how DFlash2 draws at a temperature")
    mtp_draws: Draws = Field(default="coupled", description="how the module draws at a temperature")
    draft_vocab: File | None = Field(
        default=None,
        description="the ids that may be drafted, as a JSON list or one a line; default: those in each drafter's "
        "own `draft_vocab.json`, or all",
    )
    dtype: Literal["bf16", "fp32"] = Field(default="bf16", description="number format of the drafters' weights")
    threads: int | None = Field(default=None, ge=1, le=1024, description="threads that compute; default: the CPU quota")
    grace_s: float = Field(default=5, ge=0, le=3600, description="time for open turns to end after SIGTERM")

    @property
    def loaded(self) -> tuple[DrafterMode, ...]:
        """The modes to load."""
        return self.modes or ("ngram", *(mode for mode in MODELS if getattr(self, mode) is not None))

    @model_validator(mode="after")
    def _shortest_before_longest(self) -> Self:
        if self.ngram_min > self.ngram_max:
            raise ValueError(f"ngram_min must be at most ngram_max ({self.ngram_max}), not {self.ngram_min}")
        return self

    @model_validator(mode="after")
    def _folders_of_all_that_is_loaded(self) -> Self:
        for mode in MODELS:
            for name in (mode, "model"):
                if mode in self.loaded and getattr(self, name) is None and self.model != EMBEDDED:
                    raise ValueError(f"{name} must be a folder where {mode} is loaded")
        return self


class GatewaySettings(Settings):
    listen: Address = Field(default="127.0.0.1:8000", description="HTTP address; port 0 takes a free one")
    grpc_listen: Address = Field(default="127.0.0.1:8001", description="gRPC address; port 0 takes a free one")
    target: Address = Field(description="gRPC address of the target")
    max_body_bytes: int = Field(
        default=8 * 2**20, ge=1024, le=2**30, description="largest request; more is refused with 413"
    )
    upload_timeout_s: float = Field(
        default=30,
        gt=0,
        le=3600,
        description="time a request's headers, and then its body, may take to arrive; slower is refused with 408",
    )
    max_choices: int = Field(default=128, ge=1, le=128, description="largest `n` of a request")
    request_timeout_s: float = Field(default=600, gt=0, le=86_400, description="time a request may take")
    grace_s: float = Field(default=30, ge=0, le=3600, description="time for running requests to end after SIGTERM")


class ServeSettings(Settings):
    port: int = Field(
        default=8000, ge=0, le=65535, description="HTTP port of the gateway on loopback; 0 takes a free one"
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="gRPC port of the gateway; default: the next one, or free when `port` is 0",
    )
    grace_s: float = Field(default=35, ge=0, le=3600, description="time for each program to end before it is killed")
    restart_first_s: float = Field(
        default=1, gt=0, le=3600, description="wait before the first restart of a dead program"
    )
    restart_longest_s: float = Field(default=30, gt=0, le=3600, description="the wait doubles up to this")
