"""Legal values of the numbers in `Sampling`, as its comments promise them: one table for both ends of the wire."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Legal values of a number; `above` excludes the low end. NaN lies in no bound."""

    kind: str = "a number"
    low: float
    high: float | None
    above: bool = False

    def admits(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.kind}, at least {self.low}"
        if self.above:
            return f"{self.kind} above {self.low} and at most {self.high}"
        return f"{self.kind} from {self.low} to {self.high}"


SAMPLING: Mapping[str, Bound] = {
    "temperature": Bound(low=0, high=2),
    "top_p": Bound(low=0, high=1, above=True),
    "min_p": Bound(low=0, high=1),
    "repetition_penalty": Bound(low=0, high=2, above=True),
    "presence_penalty": Bound(low=-2, high=2),
    "frequency_penalty": Bound(low=-2, high=2),
}

BIAS = Bound(low=-100, high=100)
"""Of one id in `logit_bias`."""
