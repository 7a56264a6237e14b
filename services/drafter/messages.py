"""What crosses one stream between a target and this process, as plain values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.drafter.interface import Description, Draft, Feed, Opening


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The target that a stream belongs to; `dtype` is that of its taps."""

    vocab_size: int
    hidden_size: int
    weights_fingerprint: str
    layers: int = 0
    dtype: str | None = None
    tokenizer_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    sequence: int
    epoch: int
    modes: tuple[str, ...]
    opening: Opening


@dataclass(frozen=True, slots=True)
class SequenceFeed:
    sequence: int
    epoch: int
    feed: Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSequence:
    sequence: int
    epoch: int
    frontier: int
    anchor: int
    mode: str
    max_draft_tokens: int
    feed: Feed | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """The target waits for its drafts for `budget_s` seconds from now."""

    number: int
    sequences: Sequence[TurnSequence]
    budget_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Close:
    sequence: int


Request = Open | SequenceFeed | Turn | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    mode: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Welcome:
    instance: str
    drafters: Sequence[Description]
    refusals: Sequence[Refusal]
    max_contexts: int
    ring_mapped: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    sequence: int
    epoch: int
    frontier: int
    anchor: int
    draft: Draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    turn: int
    proposals: Sequence[Proposal]
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Ack:
    sequence: int
    epoch: int
    fed: int


@dataclass(frozen=True, slots=True)
class Behind:
    sequence: int
    epoch: int
    fed: int
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    sequence: int
    epoch: int


Response = Welcome | Proposals | Ack | Behind | Released
