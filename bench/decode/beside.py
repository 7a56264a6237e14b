"""Tandem beside others: the same prompts, greedy, one stream, everybody in turn while the rest is idle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from bench.client import Together, fingerprint
from bench.command import Options, Result
from bench.decode.accepted import Accepted
from bench.decode.gguf_files import by_type
from bench.decode.measure import Texts, prompts_of, say
from bench.decode.options import Wanted
from bench.decode.peers import Peer, Running, Written, peers, running
from bench.decode.rows import COUNTED
from bench.decode.system import drafter_settings, serving
from bench.decode.turns import WARM_TOKENS, Asking, Prompt, turns
from bench.ngram import refuse_differences
from bench.pairs import Interval, Samples, means, ratio, there_and_back

TANDEM = "tandem, "


@dataclass(frozen=True, slots=True)
class Beside:
    """One workload. All of Tandem's modes gave the same tokens; others need not, for their arithmetic is another."""

    workload: str
    samples: Samples[Written]

    def rates(self, who: str) -> list[float]:
        """Tokens/s, of each turn."""
        return means(self.samples[who], lambda written: written.speed)

    def faster(self, who: str, than: str) -> Interval:
        return ratio(self.rates(who), self.rates(than))

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(who) for who in self.samples]

    def _row(self, who: str) -> dict[str, Any]:
        written = [there for there, _ in self.samples[who]]
        ours = [there for there, _ in self.samples[f"{TANDEM}none"]]
        faster = self.faster(who, f"{TANDEM}none")
        tokens = sum(len(each.ids) - 1 for each in written)
        return {
            "workload": self.workload,
            "who": who,
            "tokens/s": sum(len(each.ids) for each in written) / sum(means(self.samples[who], lambda w: w.seconds)),
            "/ tandem, none": faster.median,
            "from": faster.low,
            "to": faster.high,
            "tokens a round": tokens / max(sum(each.rounds for each in written), 1),
            "answers": len(written),
            "equal": sum(a.ids == b.ids for a, b in zip(written, ours, strict=True)),
        }

    def ratios(self, others: Mapping[str, Peer]) -> dict[str, Interval]:
        """`auto`, and the mode of ours that does the same, against each."""
        found = {}
        for name, peer in others.items():
            for mode in dict.fromkeys((peer.like, "auto")):
                if TANDEM + mode in self.samples:
                    found[f"{self.workload}: {TANDEM}{mode} / {name}"] = self.faster(TANDEM + mode, name)
        return found


def measure_peers(options: Options, wanted: Wanted) -> Result:
    asked = prompts_of(options, wanted)
    context = max(len(prompt.ids) for each in asked.values() for prompt in each) + max(wanted.tokens, WARM_TOKENS)
    ggufs = by_type(wanted.ggufs, options.model)
    others = peers(drafter_settings(options.model, wanted.drafters), ggufs, context)
    found, warnings = [], []
    with serving(options, wanted) as (stub, modes), running(options, others) as processes:
        asking = Asking(stub, modes, 0.0, wanted.tokens)
        for workload in wanted.workloads:
            texts = Texts.written(asking, asked[workload], max(wanted.batches))
            if not (counted := texts.of(COUNTED)):
                warnings.append(f"{workload}: every answer loops")
                continue
            chosen = turns(counted, 1, answers=wanted.answers, least=wanted.turns)
            found.append(Beside(workload, _measure(asking, processes, chosen, texts, options.repeats)))
            rates = (f"{row['who']} {row['tokens/s']:.0f}" for row in found[-1].rows())
            say(f"{workload}: {'; '.join(rates)} tokens/s")
        numerics = fingerprint(stub)
    if not found:
        raise SystemExit("every answer loops: no figure is reported")
    return Result(
        rows=[row for each in found for row in each.rows()],
        ratios={name: interval for each in found for name, interval in each.ratios(others).items()},
        samples={"tokens/s": {each.workload: {who: each.rates(who) for who in each.samples} for each in found}},
        settings={"tokens at most": wanted.tokens, "temperature": 0, "batch": 1, "numerics": numerics}
        | ({"llama-cpp-python": version("llama-cpp-python")} if ggufs else {}),
        warnings=warnings,
    )


def _measure(
    asking: Asking,
    processes: Mapping[str, Running],
    chosen: Sequence[Sequence[Prompt]],
    texts: Texts,
    repeats: int,
) -> Samples[Written]:
    def ways(prompt: Prompt, tokens: int) -> dict[str, Callable[[], Written]]:
        ours = {TANDEM + mode: lambda mode=mode: _written(asking.ask([prompt], mode, tokens)) for mode in asking.modes}
        theirs = {name: lambda process=process: process.ask(prompt.ids, tokens) for name, process in processes.items()}
        return ours | theirs

    for way in ways(chosen[0][0], WARM_TOKENS).values():
        way()
    samples: Samples[Written] = {}
    for (prompt,) in chosen:
        measured = there_and_back(ways(prompt, asking.tokens), repeats, warm_up=False)
        known = {prompt.name: texts.answers[prompt.name]}
        ours = {
            who: [({prompt.name: there}, {prompt.name: back}) for there, back in pairs]
            for who, pairs in measured.items()
            if who.startswith(TANDEM)
        }
        refuse_differences({"known": [(known, known)]} | ours)
        for who, pairs in measured.items():
            samples.setdefault(who, []).extend(pairs)
    return samples


def _written(together: Together) -> Written:
    (answer,) = together.answers
    return Written(answer.ids, answer.total_s, sum(Accepted.of([answer.report]).used.values()))
