"""The connection to the target: what it serves, the tokenizer that goes with it, and whether it is ready."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tandem.v1 import target_pb2 as pb
from tandem.v1.target_pb2_grpc import TargetServiceStub

from services.errors import TandemError, Unavailable
from services.text.files import TokenizerFiles
from services.text.template import ChatTemplate
from services.text.tokenizer import Tokenizer
from services.wire.clients import before_retrying
from services.wire.status import raising
from services.wire.trace import Trace

log = logging.getLogger(__name__)

SERVICE = "tandem.v1.TargetService"
CONNECT_S = 2.0
"""How long a request waits for a target that cannot be reached just now."""
DESCRIBE_S = 10.0
"""How long the target may take to say what it serves and to send its tokenizer."""
LOOK_S = 1.0
"""How long who only wants to know waits for it to answer."""
WATCH_AGAIN_S = 0.2
"""Pause before the readiness watch is opened again."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a target serves, and what its text is made with. `template` None: the model has no chat template."""

    description: pb.TargetServiceDescribeResponse
    tokenizer: Tokenizer
    template: ChatTemplate | None


class Target:
    """One target behind a channel, which the caller opens and closes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = TargetServiceStub(channel)
        self._served: Served | None = None
        self._serving = False
        self._asking: asyncio.Task[Served] | None = None

    @property
    def ready(self) -> bool:
        """A generation would work now."""
        return self._serving and self._served is not None

    async def served(self) -> Served:
        """As last described; asked for when nothing is known yet."""
        return self._served or await self.refresh()

    async def refresh(self) -> Served:
        """Ask again, connecting first if need be; whoever wants to know at the same time waits for the same answer."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, asking: asyncio.Task[Served]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # looked at, should nobody wait for it any more

    async def _ask(self) -> Served:
        await self._connected()
        description, known = await self.describe(), self._served
        if known is None or known.description.tokenizer_hash != description.tokenizer_hash:
            files = await self._fetch()
            tokenizer, template = await asyncio.to_thread(lambda: (Tokenizer(files), ChatTemplate.of(files)))
            if template is None:
                log.warning("%s has no chat template; chats will be refused", description.model)
            self._served = Served(description, tokenizer, template)
        else:
            self._served = Served(description, known.tokenizer, known.template)
        return self._served

    async def describe(self) -> pb.TargetServiceDescribeResponse:
        """What the target says of itself now."""
        with raising():
            return await self._stub.Describe(pb.TargetServiceDescribeRequest(), timeout=DESCRIBE_S)

    async def look(self) -> pb.TargetServiceDescribeResponse | None:
        """The same, when it is ready and soon says so."""
        with suppress(TandemError, TimeoutError):
            if self.ready:
                return await asyncio.wait_for(self.describe(), LOOK_S)
        return None

    async def generate(
        self, ask: pb.TargetServiceGenerateRequest, *, timeout_s: float, trace: Trace
    ) -> AsyncGenerator[pb.TargetServiceGenerateResponse, None]:
        """The rounds of one sequence. Closing this early cancels the call."""
        call = self._stub.Generate(ask, timeout=timeout_s, metadata=trace)
        try:
            with raising():
                async for message in call:
                    yield message
        finally:
            call.cancel()  # does nothing to a call that has ended

    async def watch(self, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Follow the target's readiness for ever, and tell every change of `ready`."""
        health = HealthStub(self._channel)
        while True:
            try:
                async for update in health.Watch(HealthCheckRequest(service=SERVICE), wait_for_ready=True):
                    self._serving = update.status == HealthCheckResponse.SERVING
                    if self._serving:
                        await self.refresh()
                    await tell(self.ready)
            except (grpc.aio.AioRpcError, Unavailable) as error:
                log.debug("the target is gone: %s", error)
            except Exception:
                log.exception("the target cannot be used")
            self._serving = False
            await tell(False)
            await before_retrying(WATCH_AGAIN_S)

    async def _connected(self) -> None:
        try:
            await asyncio.wait_for(self._channel.channel_ready(), CONNECT_S)
        except TimeoutError:
            raise Unavailable("the model cannot be reached") from None

    async def _fetch(self) -> TokenizerFiles:
        parts = defaultdict[str, list[bytes]](list)
        with raising():
            async for part in self._stub.GetTokenizer(pb.TargetServiceGetTokenizerRequest(), timeout=DESCRIBE_S):
                parts[part.name].append(part.chunk)
        return TokenizerFiles({name: b"".join(chunks) for name, chunks in parts.items()})
