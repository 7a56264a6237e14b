"""A whole system in this process, real but for its model and its drafter, and the command beside it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tandem.v1.target_pb2 import Limits
from tandem.v1.types_pb2 import Sampling

from services.config import GatewaySettings
from services.console.doctor import AUDITED
from services.gateway.process import Addresses, open_gateway
from services.target.admission import Admission
from services.target.encode import Exactness
from services.target.servicer import Servicer, Serving
from services.wire.clients import gateway_channel
from services.wire.serving import serving, target_service
from tests.gateway.peers import until
from tests.target.harness import System, files, request, system, truth_of
from tests.target.scripted_drafter import ScriptedDrafter
from tests.target.scripted_model import VOCAB, ScriptedModel

FILES = files(chat_template="{% for message in messages %}{{ message.content }}{% endfor %}")
PROMPT, PROMPT_IDS = "abcab", [0, 1, 2, 0, 1]
LETTERS = "abcdefghijklmnopqrstuvwxyz012345"
LIMITS = Limits(max_stop_strings=4, max_stop_string_chars=8, max_logprobs=5, max_logit_bias=3, max_draft_tokens=15)


@dataclass
class Done:
    status: int
    out: str
    err: str


@dataclass
class Whole:
    addresses: Addresses
    behind: System


async def tandem(*arguments: str, **environment: str) -> Done:
    """Run the command as a user does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *arguments,
        stdout=-1, stderr=-1, env=os.environ | {"COLUMNS": "200"} | environment,
    )  # fmt: skip
    out, err = await process.communicate()
    return Done(process.returncode, out.decode(), err.decode())


@asynccontextmanager
async def whole(*, model: ScriptedModel | None = None, exact: bool = True) -> AsyncIterator[Whole]:
    """Greedy answers to PROMPT and to the doctor are drafted rightly and wrongly by turns."""
    truth = truth_of([request(PROMPT_IDS, 60), request(AUDITED.token_ids.ids, AUDITED.max_tokens)])
    drafter = ScriptedDrafter(truth, iter([("right", 3), ("wrong", 4)] * 50))
    async with system(drafter, model=model) as running:
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
            exactness=Exactness(exact, None if exact else "rows differ here", "fp_test"),
            files=FILES,
            dtype="fp32",
        )
        async with serving("127.0.0.1:0", [target_service(servicer)], grace_s=0) as server:
            await server.ready()
            values = {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0", "target": server.address}
            async with open_gateway(GatewaySettings(**values)) as addresses:
                async with gateway_channel(addresses.grpc) as channel:
                    await until(channel, True)
                yield Whole(addresses, running)
