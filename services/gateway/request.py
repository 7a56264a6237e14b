"""What a client asked for, whichever face it came through."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

SEEDS = 2**53
"""Drawn seeds stay below what every JSON reader holds exactly."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages of `role` and `content`, for the model's chat template. `begun`: the answer's beginning, which the
    model goes on from."""

    messages: tuple[Mapping[str, str], ...]
    begun: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Encoded as it is; special tokens in it stay text."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenIds:
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Band:
    """Contexts of `start` to `end` - 1 tokens prefer the drafters `modes` in this order; None: no upper end."""

    start: int
    end: int | None
    modes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A face fills in plain values of the right types; `check` holds them against what the target serves.

    None: the client said nothing, and the model's generation default applies. `names` says how the client spells a
    field where that differs from here, and with `[]` an element of it where it is not `field[index]`.
    """

    id: str
    input: Chat | Text | TokenIds
    model: str | None = None
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int | None = None
    logprobs: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned_ids: tuple[int, ...] = ()
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    mode: str = "auto"
    max_draft_tokens: int | None = None
    strict: bool = False
    stats: bool = False
    audit: bool = False
    explain: bool = False
    bands: tuple[Band, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def name(self, field: str) -> str:
        """How the client spells `field`."""
        return self.names.get(field, field)


def shown(value: object) -> str:
    """A client's value in a message: as JSON would have it for what is not a string, never at length."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def drawn_seed() -> int:
    return secrets.randbelow(SEEDS)
