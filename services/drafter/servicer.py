"""DrafterService in terms of `Drafting`; it only translates."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from tandem.v1 import drafter_pb2 as pb
from tandem.v1.drafter_pb2_grpc import DrafterServiceServicer

from services.drafter.drafting import Drafting
from services.drafter.translate import description_of, hello_of, request_of, response_of


class DrafterServicer(DrafterServiceServicer):
    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting

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
        hello = hello_of(await anext(request_iterator, None))
        welcome, session = self._drafting.greet(hello)
        yield response_of(welcome)
        requests = (request_of(request, hello) async for request in request_iterator)
        async with aclosing(session.run(requests)) as responses:
            async for response in responses:
                yield response_of(response)
