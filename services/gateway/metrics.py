"""What the gateway counts, under the names that vLLM gave these things and with their meaning there."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from tandem.v1.types_pb2 import SpeculationReport

from services.errors import InvalidRequest, UnknownModel, Unsupported
from services.gateway.choice import Delta
from services.gateway.finish import reason
from services.gateway.target_metrics import TargetMetrics
from services.wire.codec import MODES

TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
FIRST_S = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 40, 80, 160)
REQUEST_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 240, 480, 960)


class Metrics:
    """Everything counted goes to `registry`, and is read there; so is what `target` was last told."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"tandem_{name}", help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"tandem_{name}", help, buckets=buckets, registry=registry)

        self.finished = counter("request_success", "Sequences that ended, by why.", "finished_reason")
        self.answering = Gauge(
            "tandem_gateway_num_requests", "Requests that this gateway is answering.", registry=registry
        )
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts; once, however many choices share one.")
        self.generation_tokens = counter("generation_tokens", "Tokens generated.")
        self.first = histogram("time_to_first_token_seconds", "From a request to its first tokens.", FIRST_S)
        self.step = histogram("inter_token_latency_seconds", "From one round of a sequence to its next.", TOKEN_S)
        self.token = histogram(
            "request_time_per_output_token_seconds", "Time per token of a sequence after its first round.", TOKEN_S
        )
        self.request = histogram("e2e_request_latency_seconds", "From a request to its end.", REQUEST_S)
        self.drafts = counter("spec_decode_num_drafts", "Rounds that verified a draft.", "drafter")
        self.drafted = counter("spec_decode_num_draft_tokens", "Draft tokens that were verified.", "drafter")
        self.accepted = counter("spec_decode_num_accepted_tokens", "Draft tokens accepted and kept.", "drafter")
        self.accepted_at = counter(
            "spec_decode_num_accepted_tokens_per_pos", "The same, by place in the draft.", "drafter", "position"
        )
        self.target = TargetMetrics()
        registry.register(self.target)

    @contextmanager
    def account(self, choices: int) -> Iterator["Account"]:
        """Of one request, while it is answered."""
        account = Account(self)
        why: str | None = "abort"  # unless it fails, who does not read to the end has left
        self.answering.inc()
        try:
            yield account
        except (InvalidRequest, Unsupported, UnknownModel):
            why = None
            raise
        except Exception:
            why = "error"
            raise
        finally:
            self.answering.dec()
            account.close(unfinished=choices - account.finished, why=why)


class Account:
    """The rounds of one request. `finished` counts its choices that have ended."""

    def __init__(self, metrics: Metrics) -> None:
        self.finished = 0
        self._metrics = metrics
        self._begun = time.perf_counter()
        self._began: dict[int, float] = {}  # choice -> time of its first round
        self._latest: dict[int, float] = {}
        self._later_tokens: dict[int, int] = {}  # choice -> tokens after its first round
        self._reports: dict[int, SpeculationReport] = {}

    def took(self, delta: Delta, *, prompt_tokens: int) -> None:
        now, choice, metrics = time.perf_counter(), delta.choice, self._metrics
        if not self._began:
            metrics.first.observe(now - self._begun)
            metrics.prompt_tokens.inc(prompt_tokens)
        if choice in self._began:
            metrics.step.observe(now - self._latest[choice])
            self._later_tokens[choice] += len(delta.tokens)
        else:
            self._began[choice], self._later_tokens[choice] = now, 0
        self._latest[choice], self._reports[choice] = now, delta.report
        metrics.generation_tokens.inc(len(delta.tokens))
        if delta.finish:
            metrics.finished.labels(reason(delta.finish)).inc()
            self.finished += 1
            if later := self._later_tokens[choice]:
                metrics.token.observe((now - self._began[choice]) / later)

    def close(self, *, unfinished: int, why: str | None) -> None:
        """`why` the unfinished choices ended; None: they should not have been asked for, and do not count."""
        metrics = self._metrics
        if unfinished and why:
            metrics.finished.labels(why).inc(unfinished)
        if not unfinished:
            metrics.request.observe(time.perf_counter() - self._begun)
        for report in self._reports.values():
            for each in report.by_mode:
                drafter = MODES.name(each.mode)
                metrics.drafts.labels(drafter).inc(each.rounds)
                metrics.drafted.labels(drafter).inc(each.drafted)
                metrics.accepted.labels(drafter).inc(each.accepted)
                for position, count in enumerate(each.accepted_per_position):
                    metrics.accepted_at.labels(drafter, position).inc(count)
