"""`tandem generate`: one chat message, answered in the terminal."""

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from tandem.v1 import generation_pb2 as pb
from tandem.v1.types_pb2 import Sampling, Speculation, SpeculationReport

from services.console.dial import gateway
from services.console.origins import Origins, harmless, legend, painted
from services.errors import Internal, InvalidRequest
from services.gateway.report import as_json
from services.wire.codec import FINISH_KINDS, MODES, ORIGINS


def request(
    prompt: str, *, mode: str, seed: int | None, temperature: float | None, max_tokens: int | None
) -> pb.GenerateRequest:
    """Only what a message cannot hold is refused here; the gateway knows the bounds."""
    if max_tokens is not None and not 1 <= max_tokens < 2**32:
        raise InvalidRequest(f"--max-tokens must be an integer from 1, not {max_tokens}")
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise InvalidRequest(f"--seed must be an integer of 64 bits, not {seed}")
    return pb.GenerateRequest(
        chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=prompt)]),
        max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, seed=seed),
        speculation=Speculation(mode=MODES.value(mode), stats=True),
        token_bytes=True,
    )


async def generate(
    asked: pb.GenerateRequest, *, address: str, colour: bool, out: TextIO = sys.stdout, err: TextIO = sys.stderr
) -> None:
    """The text goes to `out` as it comes; what is said about it goes to `err`."""
    origins, last = Origins(), None
    async with gateway(address) as stub:
        async for last in stub.Generate(asked):
            for origin, text in origins.push(last.text, last.tokens):
                out.write(painted(harmless(text), origin) if colour else text)
            out.flush()
    if last is None:
        raise Internal("the answer has no end")
    out.write("\n")
    out.flush()
    if colour:
        print(legend(), file=err)
    print(summary(last.report, last.usage.completion_tokens, FINISH_KINDS.name(last.finish.kind)), file=err)


async def generate_json(asked: pb.GenerateRequest, *, address: str, out: TextIO = sys.stdout) -> None:
    """One document, once all is known."""
    async with gateway(address) as stub:
        messages = [message async for message in stub.Generate(asked)]
    print(json.dumps(document(messages), ensure_ascii=False), file=out)


def document(messages: Sequence[pb.GenerateResponse]) -> dict[str, Any]:
    *_, last = messages
    matched = last.finish.WhichOneof("matched")
    return {
        "text": "".join(message.text for message in messages),
        "tokens": [
            {"id": token.id, "origin": ORIGINS.name(token.origin)} for message in messages for token in message.tokens
        ],
        "finish": FINISH_KINDS.name(last.finish.kind),
        "matched": getattr(last.finish, matched) if matched else None,
        "usage": {"prompt_tokens": last.usage.prompt_tokens, "completion_tokens": last.usage.completion_tokens},
        "speculation": as_json(last.report, stats=True, audit=False),
    }


def summary(report: SpeculationReport, tokens: int, finish: str | None) -> str:
    """What happened, in a line."""
    mode, asked = MODES.name(report.resolved), MODES.name(report.requested)
    why = f", {as_json(report, stats=False, audit=False)['reason']}" if report.reason else ""
    drafts = f"{report.accepted} of {report.drafted} drafts accepted in {report.rounds} rounds"
    exact = "exact" if report.exact else f"not exact: {report.inexact_reason}"
    return f"{mode} (asked for {asked}{why}): {tokens} tokens, {drafts}, end: {finish}, seed {report.seed}, {exact}"
