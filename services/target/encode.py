"""Domain values as messages of the wire. Translation only."""

from dataclasses import dataclass

from tandem.v1 import target_pb2, types_pb2

from services.target.counters import ORIGINS, Counters
from services.target.cut import Finish
from services.target.link.link import DrafterLink
from services.target.report import Report, RoundRecord
from services.target.rounds import Rounds
from services.target.sink import Kept, Update
from services.wire.codec import FINISH_KINDS, MODES, REASONS
from services.wire.codec import ORIGINS as ORIGIN_NAMES


@dataclass(frozen=True, slots=True)
class Exactness:
    """What the report says of the numerics."""

    exact: bool
    reason: str | None
    fingerprint: str


def update(value: Update, exactness: Exactness) -> target_pb2.TargetServiceGenerateResponse:
    return target_pb2.TargetServiceGenerateResponse(
        tokens=[_token(kept) for kept in value.kept],
        report=_report(value.report, exactness),
        finish=_finish(value.finish) if value.finish else None,
    )


def load(rounds: Rounds, link: DrafterLink) -> target_pb2.Load:
    scheduler, totals, spent, steering = rounds.scheduler, rounds.totals, rounds.spent, rounds.steering
    return target_pb2.Load(
        running=len(scheduler.running),
        waiting=len(scheduler.waiting),
        free_rows=scheduler.model.free_rows,
        cache_rows=scheduler.rows,
        generated=totals.generated,
        retained_tap_bytes=link.taps.retained_bytes,
        tap_bytes=link.taps.pages * link.taps.page_bytes,
        drafters=[
            target_pb2.DrafterLoad(
                mode=MODES.value(mode), rounds=counts.rounds, drafted=counts.drafted, accepted=counts.accepted
            )
            for mode, counts in totals.by_mode.items()
        ],
        rounds=spent.rounds,
        turns=link.turns,
        draft_seconds=spent.draft_s,
        verify_seconds=spent.verify_s,
        skipped=spent.skipped + link.skipped,
        cut=steering.totals.cut,
        left_out=steering.totals.left_out,
        dropped=+link.dropped,
        contexts=link.open_contexts,
        decisions=steering.totals.because,
        switches=steering.totals.switches,
        resting=steering.resting,
        predicted_seconds=steering.totals.predicted_s,
        measured_seconds=steering.totals.measured_s,
    )


def _token(kept: Kept) -> types_pb2.Token:
    logprobs = kept.logprobs
    return types_pb2.Token(
        id=kept.id,
        origin=ORIGIN_NAMES.value(kept.origin),
        logprob=logprobs.logprob if logprobs else None,
        top=[types_pb2.TokenLogprob(id=id, logprob=value) for id, value in logprobs.top] if logprobs else (),
    )


def _finish(finish: Finish) -> target_pb2.Finish:
    message = target_pb2.Finish(kind=FINISH_KINDS.value(finish.kind), text_offset=finish.text_offset)
    if finish.stop_id is not None:
        message.stop_id = finish.stop_id
    if finish.stop_string is not None:
        message.stop_string = finish.stop_string
    return message


def _report(report: Report, exactness: Exactness) -> types_pb2.SpeculationReport:
    counters, asked = report.counters, report.request.speculation
    return types_pb2.SpeculationReport(
        requested=MODES.value(asked.mode),
        resolved=MODES.value(report.resolved.mode),
        reason=REASONS.value(report.resolved.reason),
        strict=asked.strict,
        exact=exactness.exact,
        inexact_reason=exactness.reason or "",
        fingerprint=exactness.fingerprint,
        seed=report.request.sampling.seed,
        rounds=counters.total("rounds"),
        drafted=counters.total("drafted"),
        accepted=counters.total("accepted"),
        by_origin=types_pb2.OriginCounts(**{origin: counters.by_origin[origin] for origin in ORIGINS}),
        switches=[_switch(each.at, each.origin, each.to, each.reason) for each in counters.switches],
        by_mode=_by_mode(counters) if asked.stats else (),
        audit=_audit(report) if report.audit else None,
        decisions=[_decision(each) for each in report.recorded],
    )


def _decision(record: RoundRecord) -> types_pb2.RoundDecision:
    return types_pb2.RoundDecision(
        at=record.at,
        mode=MODES.value(record.mode),
        because=record.because,
        asked=record.asked,
        came=record.came,
        drafted=record.drafted,
        accepted=record.accepted,
        predicted_seconds=record.predicted_s,
        measured_seconds=record.measured_s,
        sequences=record.sequences,
    )


def _audit(report: Report) -> types_pb2.Audit:
    audit = report.audit
    assert audit is not None
    message = types_pb2.Audit(checked=audit.checked, differs_at=audit.differs_at, margin=audit.margin)
    if audit.differs_at is not None:
        message.choice = report.request.sampling.choice
    return message


def _switch(at: int, before: str, after: str, reason: str | None) -> types_pb2.SpeculationSwitch:
    message = types_pb2.SpeculationSwitch(at=at, to=MODES.value(after), reason=REASONS.value(reason))
    setattr(message, "from", MODES.value(before))  # a keyword of Python
    return message


def _by_mode(counters: Counters) -> list[types_pb2.ModeStatistics]:
    return [
        types_pb2.ModeStatistics(
            mode=MODES.value(mode),
            rounds=counts.rounds,
            drafted=counts.drafted,
            accepted=counts.accepted,
            accepted_per_position=counts.accepted_per_position,
        )
        for mode, counts in counters.by_mode.items()
    ]
