"""What an operator may set of the policy."""

from dataclasses import dataclass, field

from services.target.policy.bands import DEFAULT_BANDS, Band
from services.target.policy.gate import GateRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRules:
    """`hysteresis` tokens past its end a sequence leaves its band. Trying out may take `probe_share` of a request's
    time. A drafter of whose drafts less than `acceptance_floor` was kept, after `acceptance_drafts` of them, rests for
    the rest of the request."""

    bands: tuple[Band, ...] = DEFAULT_BANDS
    hysteresis: int = 256
    probe_share: float = 0.01
    acceptance_floor: float = 0.05
    acceptance_drafts: int = 128
    gate: GateRules = field(default_factory=GateRules)
