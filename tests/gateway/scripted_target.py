"""A real TargetService that plays what a test wrote. It stands in for the model only: every answer of it is one that a
target could give, and counts in its report follow from the tokens."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tandem.v1 import target_pb2 as pb
from tandem.v1 import types_pb2 as types
from tandem.v1.target_pb2_grpc import TargetServiceServicer
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Made

from services.errors import TokenizerMismatch
from services.text.files import TokenizerFiles
from services.text.tokenizer import Tokenizer
from services.wire.codec import FINISH_KINDS, MODES, ORIGINS

SPECIAL = ("<|end|>", "<|im_start|>", "<|im_end|>")
END = 0
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_files(*, template: str | None = TEMPLATE) -> TokenizerFiles:
    """A tokenizer whose tokens are single bytes: a test can break text wherever it likes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: id for id, token in enumerate((*SPECIAL, *alphabet))}
    made = Made(models.BPE(vocab, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    config = {"eos_token": "<|end|>", "chat_template": template}
    return TokenizerFiles(
        {
            "tokenizer.json": made.to_str().encode(),
            "tokenizer_config.json": json.dumps(config).encode(),
            "generation_config.json": json.dumps({"eos_token_id": END}).encode(),
        }
    )


FILES = byte_files()
TOKENIZER = Tokenizer(FILES)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round keeps. `finish` is (kind, matched, text_offset)."""

    ids: Sequence[int]
    origin: str = "plain"
    finish: pb.Finish | None = None


Step = Round | asyncio.Event | Exception | pb.TargetServiceGenerateResponse


def says(text: str, *, origin: str = "plain") -> Round:
    return Round(TOKENIZER.encode(text), origin)


def ends(text: str = "") -> Round:
    """The model ends its turn."""
    return Round([*TOKENIZER.encode(text), END], finish=pb.Finish(kind=FINISH_KINDS.value("stop_token"), stop_id=END))


def reaches(kind: str, text: str) -> Round:
    """A limit: `length` or `context`."""
    return Round(TOKENIZER.encode(text), finish=pb.Finish(kind=FINISH_KINDS.value(kind)))


def stops(text: str, string: str, *, at: int) -> Round:
    """A stop string completed; the visible output has `at` characters."""
    kind = FINISH_KINDS.value("stop_string")
    return Round(TOKENIZER.encode(text), finish=pb.Finish(kind=kind, stop_string=string, text_offset=at))


@dataclass(eq=False)
class Call:
    """One Generate as the target saw it. `ended` is set when it is over; `outcome` says how."""

    request: pb.TargetServiceGenerateRequest
    time_remaining: float | None
    metadata: dict[str, str]
    outcome: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedTarget(TargetServiceServicer):
    """`script` gives the steps of a call: rounds to count and send, messages to send as they
    are, events to wait for, errors to raise."""

    def __init__(
        self, script: Callable[[pb.TargetServiceGenerateRequest], Iterable[Step]], *, files: TokenizerFiles = FILES
    ) -> None:
        self.files = files
        self.hash_of_calls: str | None = None  # another than it describes: a target that contradicts itself
        self.play(script)
        self.described = 0
        self.fetched: list[TokenizerFiles] = []
        self.description = pb.TargetServiceDescribeResponse(
            model="tiny",
            context_length=512,
            dtype="fp32",
            exact=True,
            fingerprint="fp-1",
            limits=pb.Limits(
                max_stop_strings=16,
                max_stop_string_chars=256,
                max_logprobs=20,
                max_logit_bias=1024,
                max_draft_tokens=15,
            ),
            drafters=[
                pb.DrafterState(mode=MODES.value("ngram"), name="ngram", up=True, max_draft_tokens=15),
                pb.DrafterState(mode=MODES.value("mtp"), name="mtp", refusal="other weights"),
            ],
        )

    def play(self, script: Callable[[pb.TargetServiceGenerateRequest], Iterable[Step]]) -> None:
        """From here on `script`, as if nobody had called before."""
        self.script = script
        self.calls: list[Call] = []
        self._called = asyncio.Condition()

    async def called(self, times: int) -> None:
        """Wait until so many calls have begun."""
        async with self._called:
            await self._called.wait_for(lambda: len(self.calls) >= times)

    async def Generate(self, request, context):
        call = Call(request, context.time_remaining(), dict(context.invocation_metadata()))
        self.calls.append(call)
        async with self._called:
            self._called.notify_all()
        try:
            if request.tokenizer_hash != (self.hash_of_calls or self.files.hash):
                raise TokenizerMismatch("other files")
            async for response in self._play(request):
                yield response
            call.outcome = "finished"
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        except GeneratorExit:
            call.outcome = "cancelled"
            raise
        except Exception:
            call.outcome = "failed"
            raise
        finally:
            call.ended.set()

    async def _play(self, request):
        report = types.SpeculationReport(
            requested=request.speculation.mode,
            resolved=MODES.value("ngram" if MODES.name(request.speculation.mode) in ("auto", "ngram") else "none"),
            strict=request.speculation.strict,
            exact=self.description.exact,
            fingerprint=self.description.fingerprint,
            seed=request.sampling.seed,
        )
        for step in self.script(request):
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            elif isinstance(step, pb.TargetServiceGenerateResponse):
                yield step
            else:
                count(report, step, stats=request.speculation.stats)
                yield pb.TargetServiceGenerateResponse(
                    tokens=[token(id, step.origin, request) for id in step.ids], report=report, finish=step.finish
                )

    async def Describe(self, request, context):
        self.described += 1
        self.description.tokenizer_hash = self.files.hash
        self.description.vocab_size = Tokenizer(self.files).vocab_size
        return self.description

    async def GetTokenizer(self, request, context):
        self.fetched.append(self.files)
        for name, content in self.files.files.items():
            for start in range(0, len(content), 1000):
                yield pb.TargetServiceGetTokenizerResponse(
                    name=name, chunk=content[start : start + 1000], hash=self.files.hash
                )


def token(id: int, origin: str, request: pb.TargetServiceGenerateRequest) -> types.Token:
    """Logprobs tell ids apart: -id/1000 for the token, and one less for each alternative after it."""
    if not request.HasField("logprobs"):
        return types.Token(id=id, origin=ORIGINS.value(origin))
    top = [types.TokenLogprob(id=id + rank, logprob=-id / 1000 - rank) for rank in range(request.logprobs)]
    return types.Token(id=id, origin=ORIGINS.value(origin), logprob=-id / 1000, top=top)


def count(report: types.SpeculationReport, step: Round, *, stats: bool) -> None:
    setattr(report.by_origin, step.origin, getattr(report.by_origin, step.origin) + len(step.ids))
    if step.origin != "accepted":
        return
    report.rounds += 1
    report.drafted += len(step.ids) + 1
    report.accepted += len(step.ids)
    if stats:
        if not report.by_mode:
            report.by_mode.add(mode=MODES.value("ngram"))
        mode = report.by_mode[0]
        mode.rounds, mode.drafted, mode.accepted = report.rounds, report.drafted, report.accepted
        longer = max(len(mode.accepted_per_position), len(step.ids))
        mode.accepted_per_position[:] = [
            (mode.accepted_per_position[i] if i < len(mode.accepted_per_position) else 0) + (i < len(step.ids))
            for i in range(longer)
        ]
