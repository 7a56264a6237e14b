"""What stands before every method of our services: it refuses while they are not ready, reports errors as statuses, and
knows what is running. Health and reflection pass beside it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from services.errors import Unavailable
from services.wire.status import reported

RETRY_AFTER_S = 1.0


class Gate(grpc.aio.ServerInterceptor):
    """`refusal` is what callers are told while it is set."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._running: set[asyncio.Task[Any]] = set()
        self.refusal: str | None = "the service is loading"

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401
        handler = await continuation(details)
        service = details.method.split("/")[1]
        return handler if handler is None or service not in self._names else self._guarded(handler)

    @asynccontextmanager
    async def _call(self, context: "grpc.aio.ServicerContext[Any, Any]") -> AsyncIterator[None]:
        async with reported(context):
            if self.refusal is not None:
                raise Unavailable(self.refusal, retry_after_s=RETRY_AFTER_S)
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            yield

    def _guarded(self, handler: Any) -> Any:  # noqa: ANN401
        async def one(request: Any, context: Any) -> Any:  # noqa: ANN401
            async with self._call(context):
                return await (handler.unary_unary or handler.stream_unary)(request, context)

        async def many(request: Any, context: Any) -> None:  # noqa: ANN401
            method = handler.unary_stream or handler.stream_stream
            # Written here and not yielded on, so that a cancelled call closes the servicer's generator at once.
            async with self._call(context), aclosing(method(request, context)) as responses:
                async for response in responses:
                    await context.write(response)

        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        respond: Callable[[Any, Any], Awaitable[Any]] = many if handler.response_streaming else one
        return make(respond, handler.request_deserializer, handler.response_serializer)

    async def idle(self, timeout_s: float | None) -> None:
        """Wait until nothing runs, at most so long. A task ends after its status was sent."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
