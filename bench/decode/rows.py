"""Rows of the table: one for each mode where a text of one kind is asked in one way."""

from dataclasses import dataclass
from typing import Any

from bench.client import Together
from bench.decode.accepted import Accepted
from bench.pairs import Interval, Samples, means, ratio

COUNTED, LOOP = "counted", "loop"
AGAINST_BEST = "auto / best fixed"


def label(workload: str, temperature: str, batch: int, kind: str) -> str:
    return f"{workload}, T {temperature}, batch {batch}, {kind}"


@dataclass(frozen=True, slots=True)
class Group:
    """Turns of one workload, temperature, batch and kind of answer, measured in every mode; all tokens were found
    equal. `answers`: how many different ones there are."""

    workload: str
    temperature: float
    batch: int
    kind: str
    answers: int
    samples: Samples[Together]

    @property
    def label(self) -> str:
        return label(self.workload, f"{self.temperature:g}", self.batch, self.kind)

    def seconds(self, mode: str) -> list[float]:
        """Of each turn."""
        return means(self.samples[mode], lambda half: half.seconds)

    def faster(self, mode: str, than: str = "none") -> Interval:
        """The tokens are the same, so the ratio of tokens/s is that of the times, the other way round."""
        return ratio(self.seconds(than), self.seconds(mode))

    @property
    def tokens(self) -> int:
        """Of all turns, once."""
        return sum(len(answer.ids) for there, _ in self.samples["none"] for answer in there.answers)

    def speed(self, mode: str) -> float:
        return self.tokens / sum(self.seconds(mode))

    @property
    def best_fixed(self) -> str:
        """The fastest of the modes that can be asked for, `none` among them: known only afterwards."""
        return max((mode for mode in self.samples if mode != "auto"), key=self.speed)

    def accepted(self, mode: str) -> Accepted:
        halves = [half for pair in self.samples[mode] for half in pair]
        return Accepted.of([answer.report for half in halves for answer in half.answers])

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(mode) for mode in self.samples]

    def ratios(self) -> dict[str, Interval]:
        found = {f"{self.label}: {mode} / none": self.faster(mode) for mode in self.samples if mode != "none"}
        if "auto" in self.samples:
            found[f"{self.label}: {AGAINST_BEST}"] = self.faster("auto", self.best_fixed)
        return found

    def _row(self, mode: str) -> dict[str, Any]:
        faster, accepted = self.faster(mode), self.accepted(mode)
        against = self.faster("auto", self.best_fixed) if mode == "auto" else None
        return {
            "workload": self.workload,
            "T": f"{self.temperature:g}",
            "batch": self.batch,
            "kind": self.kind,
            "answers": self.answers,
            "turns": faster.repeats,
            "mode": mode,
            "tokens/s": self.speed(mode),
            "/ none": faster.median,
            "from": faster.low,
            "to": faster.high,
            "accepted": accepted.mean_length,
            "drafts": accepted.drafted,
            "kept": accepted.accepted,
            "rounds": accepted.shares,
            "/ best fixed": against and against.median,
            "best fixed": self.best_fixed if against else None,
            "kept beyond": [round(share, 4) for share in accepted.by_position],
            "histogram": accepted.histogram,
        }
