"""TargetService over a real socket: what a gateway sees of answers, refusals, deadlines and departures."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest
from tandem.v1 import target_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer
from tandem.v1.target_pb2_grpc import TargetServiceStub
from tandem.v1.types_pb2 import Audit, Sampling, Speculation, Stopping

from services.errors import ContextTooLong, DeadlineExceeded, InvalidRequest, Overloaded, TokenizerMismatch, Unsupported
from services.target.admission import Admission
from services.target.encode import Exactness
from services.target.scheduler import Bounds
from services.target.servicer import CHUNK_BYTES, Servicer, Serving
from services.text.files import TokenizerFiles
from services.wire.clients import target_channel
from services.wire.codec import FINISH_KINDS, MODES, ORIGINS
from services.wire.serving import serving, target_service
from services.wire.status import raising
from tests.target.harness import System, plain_answer, request, system, truth_of
from tests.target.recording_drafter import RecordingDrafter, recording
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import LAYERS, VOCAB, ScriptedModel

pytestmark = pytest.mark.anyio

PROMPT = [3, 1, 4]
FILES = TokenizerFiles({"tokenizer.json": b"x" * (2 * CHUNK_BYTES + 7), "config.json": b"{}", "empty": b""})
LIMITS = pb.Limits(max_stop_strings=4, max_stop_string_chars=8, max_logprobs=5, max_logit_bias=3, max_draft_tokens=15)
GREEDY = Sampling(temperature=0, seed=7)


@asynccontextmanager
async def served(
    *, drafter: DrafterServiceServicer | None = None, model: ScriptedModel | None = None, waiting: int = 64
):
    """A stub of the service, and what is behind it."""
    bounds = Bounds(max_sequences=2, max_waiting=waiting, prefill_chunk=8, round_tokens=64)
    async with system(drafter, model=model, bounds=bounds) as running:
        servicer = Servicer()
        servicer.serving = Serving(
            rounds=running.rounds,
            link=running.link,
            admission=Admission(
                model="tiny",
                tokenizer_hash=FILES.hash,
                vocab_size=VOCAB,
                context=running.model.context,
                stop_ids=frozenset(),
                defaults=Sampling(),
                limits=LIMITS,
            ),
            exactness=Exactness(True, None, "fp_test"),
            files=FILES,
            dtype="fp32",
        )
        async with (
            serving("127.0.0.1:0", [target_service(servicer)], grace_s=0) as server,
            target_channel(server.address) as channel,
        ):
            await server.ready()
            yield TargetServiceStub(channel), running


def call(**fields) -> pb.TargetServiceGenerateRequest:
    given = {"prompt_ids": PROMPT, "max_tokens": 12, "sampling": GREEDY, "speculation": Speculation(mode=1)}
    return pb.TargetServiceGenerateRequest(**given | fields)


async def answered(stub, request: pb.TargetServiceGenerateRequest, **options) -> list[pb.TargetServiceGenerateResponse]:
    with raising():
        return [message async for message in stub.Generate(request, **options)]


def count(messages: list[pb.TargetServiceGenerateResponse]) -> int:
    return sum(len(message.tokens) for message in messages)


async def test_an_answer_carries_tokens_origins_logprobs_and_a_cumulative_report() -> None:
    async with served() as (stub, _):
        messages = await answered(stub, call(logprobs=2, speculation=Speculation(mode=MODES.value("mtp"), stats=True)))
    tokens = [token for message in messages for token in message.tokens]
    assert [token.id for token in tokens] == plain_answer(request(PROMPT, 12))
    assert [ORIGINS.name(token.origin) for token in tokens] == ["first", *["plain"] * 11]
    assert all(token.HasField("logprob") and len(token.top) == 2 for token in tokens)
    last = messages[-1]
    assert FINISH_KINDS.name(last.finish.kind) == "length"
    assert not any(message.HasField("finish") for message in messages[:-1])
    report = last.report
    assert (MODES.name(report.requested), MODES.name(report.resolved), report.seed) == ("mtp", "none", 7)
    assert (report.exact, report.fingerprint, report.by_origin.plain) == (True, "fp_test", 11)


async def test_a_stop_string_says_where_the_visible_text_ends() -> None:
    text = "".join("abcdefghijklmnopqrstuvwxyz012345"[id] for id in plain_answer(request(PROMPT, 12)))
    async with served() as (stub, _):
        messages = await answered(stub, call(stopping=Stopping(strings=[text[5:7]])))
    finish = messages[-1].finish
    assert (finish.stop_string, finish.text_offset) == (text[5:7], text.index(text[5:7]))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"prompt_ids": []}, InvalidRequest),
        ({"max_tokens": 4000}, ContextTooLong),
        ({"tokenizer_hash": "other"}, TokenizerMismatch),
        ({"speculation": Speculation(mode=4, strict=True)}, Unsupported),
    ],
)
async def test_a_refusal_crosses_the_wire_as_what_it_is(fields: dict, error: type[Exception]) -> None:
    async with served() as (stub, running):
        with pytest.raises(error):
            await answered(stub, call(**fields))
        assert running.model.forwards == 0


async def test_a_full_queue_tells_when_to_try_again() -> None:
    async with served(waiting=0) as (stub, _):
        with pytest.raises(Overloaded) as refused:
            await answered(stub, call())
    assert refused.value.retry_after_s > 0


async def test_a_deadline_ends_the_call_and_the_work_behind_it() -> None:
    model, released = ScriptedModel(), threading.Event()
    model.on_forward = lambda: released.wait(60)
    async with served(model=model) as (stub, running):
        with pytest.raises(DeadlineExceeded):
            await answered(stub, call(max_tokens=200), timeout=0.3)
        released.set()
        await running.settled()
        assert model.forwards <= 2
        assert count(await answered(stub, call())) == 12


async def test_a_call_that_is_cancelled_frees_its_rows_within_a_round() -> None:
    async with served() as (stub, running):
        stream = stub.Generate(call(max_tokens=200))
        await anext(aiter(stream))
        stream.cancel()
        await running.settled()
        assert running.model.forwards < 200


async def test_a_broken_step_is_masked_and_the_next_call_is_served() -> None:
    model = ScriptedModel()
    model.fail_at = 3
    async with served(model=model) as (stub, running):
        with pytest.raises(Exception, match="internal error") as failed:
            await answered(stub, call())
        assert "broke" not in str(failed.value)
        await running.settled()
        assert count(await answered(stub, call())) == 12


async def test_describe_tells_what_is_served_and_which_drafters_are_here() -> None:
    drafter = ScriptedDrafter(lambda ids: [], iter([]))
    async with served(drafter=drafter) as (stub, _):
        described = await stub.Describe(pb.TargetServiceDescribeRequest())
    assert (described.model, described.vocab_size, described.exact) == ("tiny", VOCAB, True)
    assert (described.tokenizer_hash, described.limits) == (FILES.hash, LIMITS)
    assert [(MODES.name(each.mode), each.up) for each in described.drafters] == [("ngram", True)]


async def test_the_last_message_of_an_audited_call_has_the_verdict_and_the_finish() -> None:
    asked = request(PROMPT, 12)
    drafter = ScriptedDrafter(truth_of([asked]), iter([]))
    async with served(drafter=drafter) as (stub, _):
        messages = await answered(stub, call(choice=2, speculation=Speculation(audit=True)))
    assert [message.report.HasField("audit") for message in messages] == [False] * (len(messages) - 1) + [True]
    assert messages[-1].HasField("finish")
    assert messages[-1].report.audit == Audit(checked=12)
    assert messages[-1].report.accepted > 0


async def test_describe_tells_what_runs_what_waits_and_what_was_drafted() -> None:
    drafter = ScriptedDrafter(truth_of([request(PROMPT, 12)]), iter([("right", 3), ("wrong", 2)]))
    async with served(drafter=drafter) as (stub, running):
        report = (await answered(stub, call(speculation=Speculation())))[-1].report
        await running.settled()
        load = (await stub.Describe(pb.TargetServiceDescribeRequest())).load
        assert (load.running, load.waiting, load.free_rows, load.cache_rows) == (0, 0, 4096, 4096)
        assert load.generated == 12
        assert load.drafters == [
            pb.DrafterLoad(
                mode=MODES.value("ngram"), rounds=report.rounds, drafted=report.drafted, accepted=report.accepted
            )
        ]
        streams = [stub.Generate(call(max_tokens=200)) for _ in range(3)]
        for stream in streams[:2]:
            await stream.read()
        load = (await stub.Describe(pb.TargetServiceDescribeRequest())).load
        assert (load.running, load.waiting, load.free_rows) == (2, 1, 4096 - 2 * (len(PROMPT) + 199))
        assert load.contexts == 2
        for stream in streams:
            stream.cancel()
        await running.settled()


async def test_the_tokenizer_arrives_whole_in_chunks() -> None:
    async with served() as (stub, _):
        parts: dict[str, bytes] = {}
        async for part in stub.GetTokenizer(pb.TargetServiceGetTokenizerRequest()):
            assert len(part.chunk) <= CHUNK_BYTES
            parts[part.name] = parts.get(part.name, b"") + part.chunk
            assert part.hash == FILES.hash
    assert TokenizerFiles(parts) == FILES


async def test_calls_together_are_the_calls_alone() -> None:
    async with served() as (stub, running):
        calls = [call(prompt_ids=[i, i + 1], sampling=Sampling(temperature=0.8, seed=i), choice=i) for i in range(8)]
        together = await asyncio.gather(*(answered(stub, each) for each in calls))
        alone = [await answered(stub, each) for each in calls]
        assert isinstance(running, System)
    ids = [[[token.id for message in each for token in message.tokens] for each in some] for some in (together, alone)]
    assert ids[0] == ids[1]


async def test_describe_says_why_a_drafter_was_refused_and_how_much_is_retained_for_others() -> None:
    misfit = RecordingDrafter(mode="dflash", tap_layers=(1, LAYERS))
    with recording(misfit, RecordingDrafter(needs_final_hidden=True)) as drafter:
        async with served(drafter=drafter) as (stub, running):
            before = await stub.Describe(pb.TargetServiceDescribeRequest())
            hold = threading.Event()
            running.model.on_forward = lambda: hold.wait(30) if running.model.forwards > 3 else None
            answering = asyncio.create_task(answered(stub, call(speculation=Speculation(mode=MODES.value("mtp")))))
            while running.model.forwards <= 3:  # noqa: ASYNC110
                await asyncio.sleep(0)
            during = await stub.Describe(pb.TargetServiceDescribeRequest())
            hold.set()
            await answering
    states = {MODES.name(each.mode): each for each in before.drafters}
    assert states["mtp"].up
    assert not states["mtp"].refusal
    assert not states["dflash"].up
    assert f"needs what layer {LAYERS} computes" in states["dflash"].refusal
    assert before.load.retained_tap_bytes == 0 < during.load.retained_tap_bytes <= during.load.tap_bytes
