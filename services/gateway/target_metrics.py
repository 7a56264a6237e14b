"""What the target says of itself, as metrics: vLLM's names and meanings where it has them.

Nothing is kept here. Every scrape shows the last description, whose totals begin again with the target's process.
"""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector
from tandem.v1.target_pb2 import Load, TargetServiceDescribeResponse

from services.wire.codec import MODES


class TargetMetrics(Collector):
    """`described` None: the target says nothing, and is not up."""

    def __init__(self) -> None:
        self.described: TargetServiceDescribeResponse | None = None

    def collect(self) -> Iterator[Metric]:
        target = self.described
        yield _gauge("target_up", "1 while a generation would work.", target is not None)
        if target is None:
            return
        yield _gauge("exact", "1 where no drafter can change a token.", target.exact)
        up = {MODES.name(each.mode) or "": each.up and not each.refusal for each in target.drafters}
        yield _labelled("drafter_up", "1 while the target can use the drafter.", "drafter", up)
        info = GaugeMetricFamily(
            "tandem_target_info", "What is served, as labels.", labels=("model_name", "dtype", "fingerprint")
        )
        info.add_metric((target.model, target.dtype, target.fingerprint), 1)
        yield info
        yield from _load(target.load)


def _load(load: Load) -> Iterator[Metric]:
    yield _gauge("num_requests_running", "Sequences that run, replays of audits among them.", load.running)
    yield _gauge("num_requests_waiting", "Sequences that wait to run.", load.waiting)
    used = load.cache_rows - load.free_rows
    yield _gauge("cache_rows", "Positions that the target's cache holds.", load.cache_rows)
    yield _gauge("cache_rows_used", "Positions of it that running sequences have reserved.", used)
    yield _gauge("kv_cache_usage_perc", "The same as a part of the whole, 0 to 1.", used / max(load.cache_rows, 1))
    yield _gauge("tap_bytes", "Bytes of taps that may be retained for drafters.", load.tap_bytes)
    yield _gauge("retained_tap_bytes", "Bytes of taps that are retained.", load.retained_tap_bytes)
    yield _gauge("drafter_contexts", "Sequences for which the drafter holds contexts.", load.contexts)
    yield SummaryMetricFamily(
        "tandem_draft_seconds", "Rounds' waits for drafts.", count_value=load.turns, sum_value=load.draft_seconds
    )
    yield SummaryMetricFamily(
        "tandem_verify_seconds",
        "The model's time for a round: drafts are verified and prompts read in one pass.",
        count_value=load.rounds,
        sum_value=load.verify_seconds,
    )
    skipped = "Rounds of a sequence that wanted drafts and had none to verify, by why."
    yield _counted("spec_decode_num_skipped_rounds", skipped, load.skipped)
    decided = "Decisions of the policy, a sequence and round each, by the rule that decided."
    yield _counted("spec_decode_num_decisions", decided, load.decisions)
    switches = "Changes of a running sequence from a drafter to another, or to none, by why."
    yield _counted("spec_decode_num_switches", switches, load.switches)
    resting = "Sequences that may draft and rest now, by why."
    yield _labelled("spec_decode_resting", resting, "reason", load.resting)
    predicted = "Seconds that the policy expected rounds to take, of those whose time it could tell."
    yield _total("round_predicted_seconds", predicted, load.predicted_seconds)
    yield _total("round_measured_seconds", "Seconds that the same rounds took.", load.measured_seconds)
    cut = "Drafts that came and were not verified, as they were not expected to be worth their rows."
    yield _counted("spec_decode_num_cut_draft_tokens", cut, load.cut, label="drafter")
    left_out = "Sequences that were not fed to a drafter, as hardly anybody used it of late."
    yield _counted("spec_decode_num_left_out_sequences", left_out, load.left_out, label="drafter")
    dropped = "What the drafter sent and nobody used, by why."
    yield _counted("spec_decode_num_dropped_proposals", dropped, load.dropped)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tandem_{name}", help, value=value)


def _total(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"tandem_{name}", help, value=value)


def _labelled(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"tandem_{name}", help, labels=(label,))
    for each, value in values.items():
        family.add_metric((each,), value)
    return family


def _counted(name: str, help: str, counts: Mapping[str, int], *, label: str = "reason") -> Metric:
    family = CounterMetricFamily(f"tandem_{name}", help, labels=(label,))
    for reason, count in sorted(counts.items()):
        family.add_metric((reason,), count)
    return family
