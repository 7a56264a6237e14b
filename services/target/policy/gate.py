"""Is drafting faster than not drafting? One drafter for one sequence, judged by what its rounds really took.

      drafting --(mean ratio below 1)--> resting --(interval of floor rounds)--> probing --(won)--> drafting
                                            ^----------------(lost: the interval doubles)--'

ratio = kept tokens x seconds of a floor token / seconds of the round. A probe is won by the plain ratio of one judged
round: the mean begins again high, so that every probe would win by it, and nothing would ever back off.
"""

from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class GateRules:
    """`grace` rounds after every entry are not judged; `first` to `most` floor rounds lie between probes; after
    `refresh` judged rounds that won in a row one floor round measures the clock."""

    grace: int = 3
    first: int = 32
    most: int = 512
    refresh: int = 48
    hope: float = 2.0
    keep: float = 0.6
    take: float = 0.4


class State(Enum):
    DRAFTING = "drafting"
    RESTING = "resting"
    PROBING = "probing"


class Wish(Enum):
    """What the gate would do in the next round: a probe and a refresh cost time, so it may be told to wait."""

    DRAFT = "draft"
    REST = "rest"
    PROBE = "probe"
    REFRESH = "refresh"


@dataclass(slots=True)
class Gate:
    """`mean` ratio; `interval` to the next probe, `waited` of it; `unjudged` rounds to go; `won` in a row."""

    rules: GateRules
    state: State = State.DRAFTING
    mean: float = field(init=False)
    interval: int = field(init=False)
    unjudged: int = field(init=False)
    waited: int = 0
    won: int = 0

    def __post_init__(self) -> None:
        self.mean, self.interval, self.unjudged = self.rules.hope, self.rules.first, self.rules.grace

    def wish(self) -> Wish:
        if self.state is State.RESTING:
            return Wish.PROBE if self.waited >= self.interval else Wish.REST
        return Wish.REFRESH if self.won >= self.rules.refresh else Wish.DRAFT

    def floored(self) -> None:
        """A floor round was run: while it rests, or to refresh."""
        if self.state is State.RESTING:
            self.waited += 1
        else:
            self.won = 0

    def drafted(self, ratio: float) -> None:
        """A round with this drafter came to `ratio`."""
        if self.state is State.RESTING:
            self.state, self.unjudged = State.PROBING, self.rules.grace
        if self.unjudged:
            self.unjudged -= 1
            return
        if self.state is State.PROBING:
            self._probed(ratio)
            return
        self.mean = self.rules.keep * self.mean + self.rules.take * ratio
        self.won = self.won + 1 if ratio >= 1 else 0
        if self.mean < 1:
            self._rest()

    def _probed(self, ratio: float) -> None:
        if ratio >= 1:
            self.state, self.mean, self.interval, self.won = State.DRAFTING, self.rules.hope, self.rules.first, 0
        else:
            self.interval = min(2 * self.interval, self.rules.most)
            self._rest()

    def _rest(self) -> None:
        self.state, self.waited, self.won = State.RESTING, 0, 0
