"""TargetService: proto in, one domain call, proto out."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import grpc.aio
from tandem.v1 import target_pb2 as pb
from tandem.v1.target_pb2_grpc import TargetServiceServicer

from services.target import encode
from services.target.admission import Admission
from services.target.audit import audited
from services.target.encode import Exactness
from services.target.link.link import DrafterLink
from services.target.rounds import Rounds
from services.text.files import TokenizerFiles
from services.wire.codec import MODES

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Everything a loaded target answers with."""

    rounds: Rounds
    link: DrafterLink
    admission: Admission
    exactness: Exactness
    files: TokenizerFiles
    dtype: str


class Servicer(TargetServiceServicer):
    """`serving` is set once the model is loaded; until then the server lets no call through."""

    serving: Serving

    async def Generate(
        self, request: pb.TargetServiceGenerateRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> AsyncIterator[pb.TargetServiceGenerateResponse]:
        serving = self.serving
        asked = serving.admission.read(request)
        generate = partial(audited, serving.rounds) if asked.speculation.audit else serving.rounds.generate
        async with aclosing(generate(asked)) as updates:
            async for update in updates:
                yield encode.update(update, serving.exactness)

    async def Describe(
        self, request: pb.TargetServiceDescribeRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> pb.TargetServiceDescribeResponse:
        serving, admission = self.serving, self.serving.admission
        return pb.TargetServiceDescribeResponse(
            model=admission.model,
            vocab_size=admission.vocab_size,
            context_length=admission.context,
            dtype=serving.dtype,
            exact=serving.exactness.exact,
            inexact_reason=serving.exactness.reason or "",
            fingerprint=serving.exactness.fingerprint,
            tokenizer_hash=serving.files.hash,
            default_sampling=admission.defaults,
            limits=admission.limits,
            drafters=_drafters(serving.link),
            load=encode.load(serving.rounds, serving.link),
        )

    async def GetTokenizer(
        self, request: pb.TargetServiceGetTokenizerRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> AsyncIterator[pb.TargetServiceGetTokenizerResponse]:
        files = self.serving.files
        for name, content in files.files.items():
            for start in range(0, max(len(content), 1), CHUNK_BYTES):
                chunk = content[start : start + CHUNK_BYTES]
                yield pb.TargetServiceGetTokenizerResponse(name=name, chunk=chunk, hash=files.hash)


def _drafters(link: DrafterLink) -> list[pb.DrafterState]:
    up = [
        pb.DrafterState(mode=MODES.value(mode), name=each.name, up=True, max_draft_tokens=each.max_draft_tokens)
        for mode, each in link.drafters.items()
    ]
    refused = [pb.DrafterState(mode=each.mode, name=each.name, refusal=each.reason) for each in link.refusals]
    return up + refused
