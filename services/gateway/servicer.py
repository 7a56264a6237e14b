"""GenerationService: proto in, one generation, proto out."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import grpc.aio
from tandem.v1 import generation_pb2 as pb
from tandem.v1.generation_pb2_grpc import GenerationServiceServicer
from tandem.v1.target_pb2 import Finish
from tandem.v1.types_pb2 import Token

from services.gateway.choice import Delta, End
from services.gateway.generate import Generator
from services.gateway.messages import request_of
from services.text.tokenizer import Tokenizer
from services.wire.trace import trace_of


class Servicer(GenerationServiceServicer):
    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def Generate(
        self, request: pb.GenerateRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        asked = request_of(request)
        generation = self._generator.start(
            asked, timeout_s=context.time_remaining(), trace=trace_of(context.invocation_metadata() or ())
        )
        async with aclosing(generation.deltas) as deltas:
            async for delta in deltas:
                if delta.end and not asked.stats:
                    delta.end.report.ClearField("by_mode")
                if request.token_bytes:
                    _fill_pieces(delta.tokens, generation.served.tokenizer)
                yield _response(delta)

    async def Describe(
        self, request: pb.DescribeRequest, context: "grpc.aio.ServicerContext[object, object]"
    ) -> pb.DescribeResponse:
        return pb.DescribeResponse(target=await self._generator.target.describe())


def _fill_pieces(tokens: Iterable[Token], tokenizer: Tokenizer) -> None:
    for token in tokens:
        special = tokenizer.token(token.id, skip_special=True) is None
        token.piece = b"" if special else tokenizer.token_bytes(token.id)


def _response(delta: Delta) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        choice=delta.choice,
        text=delta.text,
        tokens=delta.tokens,
        finish=_finish(delta.finish) if delta.finish else None,
        usage=_usage(delta.end) if delta.end else None,
        report=delta.end.report if delta.end else None,
    )


def _finish(finish: Finish) -> pb.ChoiceFinish:
    matched = finish.WhichOneof("matched")
    return pb.ChoiceFinish(kind=finish.kind, **({matched: getattr(finish, matched)} if matched else {}))


def _usage(end: End) -> pb.Usage:
    return pb.Usage(prompt_tokens=end.prompt_tokens, completion_tokens=end.completion_tokens)
