"""`ngram` against `none` where answers take over text of their prompts: `tandem serve` asked over gRPC, one stream.

Both modes must give the same tokens; if any differ, nothing is reported and the status is 1. An answer counts when most
of it is text of its prompt and it does not run in circles: a loop is easy to draft, so loops are told apart. What a
request does not say is as it ships: draft lengths are the drafter's own. `accepted` is the mean accepted length,
1 + accepted drafts / rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.client import Answer, ask, asking, fingerprint, running
from bench.command import Options, Result, main
from bench.pairs import Interval, Samples, means, ratio, there_and_back
from bench.texts import COPYING, chats, copied, loops

LEAST_COPIED = 0.5
COUNTED, LOOP, OTHER = "copied", "loop", "other"

Answers = dict[str, Answer]
"""By the name of the prompt."""


@dataclass(frozen=True, slots=True)
class Audited:
    """Samples of the two modes whose tokens were found equal, and of which kind each answer is."""

    samples: Samples[Answers]
    kinds: dict[str, str]

    def named(self, kind: str) -> list[str]:
        return [name for name, each in self.kinds.items() if each == kind]

    def faster(self, names: Sequence[str]) -> Interval:
        """The tokens are the same, so the ratio of tokens/s is that of the times, the other way round."""
        times = {mode: means(pairs, lambda answers: _seconds(answers, names)) for mode, pairs in self.samples.items()}
        return ratio(times["none"], times["ngram"])

    def row(self, label: str, kind: str, names: Sequence[str]) -> dict[str, Any]:
        drafted = self.samples["ngram"][0][0]
        faster = self.faster(names)
        reports = [drafted[name].report for name in names]
        return {
            "answers": label,
            "kind": kind,
            "tokens": sum(len(drafted[name].ids) for name in names),
            "accepted": 1 + sum(each.accepted for each in reports) / sum(each.rounds for each in reports),
            "ngram / none": faster.median,
            "from": faster.low,
            "to": faster.high,
        }


def measure(options: Options) -> Result:
    tokens, count = (24, 2) if options.quick else (200, len(COPYING))
    encode = chats(options.model)
    prompts = {name: encode(content) for name, content in list(COPYING.items())[:count]}
    with running(options) as stub:

        def answers(mode: str) -> Callable[[], Answers]:
            asked = {name: asking(ids, tokens, mode=mode, to_the_end=True) for name, ids in prompts.items()}
            return lambda: {name: ask(stub, request) for name, request in asked.items()}

        samples = there_and_back({mode: answers(mode) for mode in ("none", "ngram")}, options.repeats)
        numerics = fingerprint(stub)
    refuse_differences(samples)
    first = samples["none"][0][0]
    audited = Audited(samples, {name: kind(prompts[name], first[name].ids) for name in prompts})
    groups = {kind: names for kind in (COUNTED, LOOP, OTHER) if (names := audited.named(kind))}
    return Result(
        rows=[audited.row(name, kind, [name]) for name, kind in audited.kinds.items()]
        + [audited.row(f"all of kind {kind!r}", kind, names) for kind, names in groups.items()],
        ratios={f"tokens/s, ngram / none, answers of kind {kind!r}": audited.faster(groups[kind]) for kind in groups},
        samples={"seconds": {mode: [[_times(half) for half in pair] for pair in samples[mode]] for mode in samples}},
        settings={"tokens at most": tokens, "numerics": numerics, "answers with equal tokens": f"all {len(prompts)}"},
        warnings=() if COUNTED in groups else ["no answer is a copy that does not loop"],
    )


def refuse_differences(samples: Samples[Answers]) -> None:
    halves = [half for pairs in samples.values() for pair in pairs for half in pair]
    for name, expected in halves[0].items():
        if any(half[name].ids != expected.ids for half in halves):
            raise SystemExit(
                f"the modes, or two runs of one, gave different tokens for {name!r}: no figure is reported"
            )


def kind(prompt: Sequence[int], answer: Sequence[int]) -> str:
    if loops(answer):
        return LOOP
    return COUNTED if copied(prompt, answer) >= LEAST_COPIED else OTHER


def _seconds(answers: Answers, names: Sequence[str]) -> float:
    return sum(answers[name].total_s for name in names)


def _times(answers: Answers) -> dict[str, float]:
    return {name: answer.total_s for name, answer in answers.items()}


if __name__ == "__main__":
    main("ngram", __doc__, measure)
