"""DrafterService in terms of `Drafting`; it only translates."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer

from services.drafter.drafting import Drafting
from services.drafter.translate import description_of, hello_of, request_of, response_of
from services.wire.ring import mapped


class DrafterServicer(DrafterServiceServicer):
    """`tap_folder`: where a target may offer a tap ring; None: nowhere."""

    def __init__(self, drafting: Drafting, tap_folder: Path | None = None) -> None:
        self._drafting, self._tap_folder = drafting, tap_folder

    async def Describe(
        self, request: pb.DrafterServiceDescribeRequest, context: object
    ) -> pb.DrafterServiceDescribeResponse:
        return pb.DrafterServiceDescribeResponse(
            instance=self._drafting.instance,
            drafters=[description_of(description) for description in self._drafting.descriptions],
        )

    async def Draft(
        self, request_iterator: AsyncIterator[pb.DraftRequest], context: object
    ) -> AsyncIterator[pb.DraftResponse]:
        first = await anext(request_iterator, None)
        hello = hello_of(first)
        assert first is not None, "hello_of raises otherwise"
        welcome, session = self._drafting.greet(hello)
        with mapped(first.hello, self._tap_folder) as ring:
            yield response_of(replace(welcome, ring_mapped=ring is not None))
            requests = (request_of(request, hello, ring) async for request in request_iterator)
            async with aclosing(session.run(requests)) as responses:
                async for response in responses:
                    yield response_of(response)
