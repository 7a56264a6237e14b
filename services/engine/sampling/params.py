"""How one sequence wants its tokens drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.errors import InvalidRequest

GREEDY_TEMPERATURE = 1e-4  # at or below it the largest logit wins; target and drafters agree on this number


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Values inside their documented ranges; the defaults change nothing."""

    temperature: float = 1.0
    top_k: int = 0  # 0: no limit
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    banned: frozenset[int] = frozenset()
    min_tokens: int = 0
    seed: int
    choice: int = 0
    logprobs: int | None = None  # how many alternatives beside the drawn token; None: no logprobs at all

    @property
    def greedy(self) -> bool:
        return self.temperature <= GREEDY_TEMPERATURE

    @property
    def filtered(self) -> bool:
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    def check(self, vocab_size: int, stop_ids: frozenset[int] = frozenset()) -> None:
        """Refuse what only a model can judge: ids it does not have, and masks that leave no token to draw."""
        for name, ids in (("logit_bias", self.logit_bias), ("banned_ids", self.banned)):
            for id in ids:
                if not 0 <= id < vocab_size:
                    raise InvalidRequest(f"{name}: token id {id} is not in 0..{vocab_size - 1}", field=name)
        masked = self.banned | (stop_ids if self.min_tokens > 0 else frozenset())
        if len(masked) >= vocab_size:
            raise InvalidRequest("banned_ids: no token is left to draw", field="banned_ids")
