"""`tandem doctor`: what keeps this machine from serving, and whether a running system keeps its promise.

A check that fails is `bad`. What cannot be looked at from here, or need not be there, is `note`, and no failure.
"""

import importlib.metadata
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.v1 import generation_pb2 as pb
from tandem.v1.target_pb2 import TargetServiceDescribeResponse
from tandem.v1.types_pb2 import Sampling, Speculation, Stopping

from services.config import ServeSettings, TargetSettings, load
from services.config.folders import cache_root
from services.config.settings import EMBEDDED
from services.config.sources import ROLES
from services.console.dial import gateway
from services.console.top import TIMEOUT_S
from services.errors import TandemError, Unavailable
from services.wire.codec import MODES

DISTRIBUTION = "tandem-serve"
PYTHON = (3, 11)
AUDITED = pb.GenerateRequest(
    token_ids=pb.TokenIds(ids=[0, 1, 2, 3] * 8),
    max_tokens=32,
    sampling=Sampling(temperature=0, seed=1),
    stopping=Stopping(ignore_eos=True),
    speculation=Speculation(audit=True),
)
"""Ids that every vocabulary has, and a prompt that repeats, so that there is something to draft."""
AUDIT_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Check:
    """`verdict` is ok, note or bad."""

    verdict: str
    what: str
    found: str


def table(checks: list[Check]) -> str:
    width = max(len(check.what) for check in checks)
    return "\n".join(f"{check.verdict:<5} {check.what:<{width}}  {check.found}" for check in checks)


async def examine(*, config: Path | None, address: str) -> list[Check]:
    """All checks. `address` is the gRPC port of the gateway to ask, should one run."""
    system = [check async for check in _system(address)]
    return [
        *_versions(),
        *(_settings(role, config) for role in ROLES),
        *_model(config),
        *_ports(config, running=system[0].verdict == "ok"),
        *system,
    ]


def _versions() -> Iterator[Check]:
    found = ".".join(map(str, sys.version_info[:3]))
    yield Check("ok" if sys.version_info >= PYTHON else "bad", "python", f"{found}, needs {'.'.join(map(str, PYTHON))}")
    # A package that several extras need is looked at once; those for developers serve nobody.
    lines = [line for line in importlib.metadata.requires(DISTRIBUTION) or [] if not re.search("extra == .dev", line)]
    needs = {match[1]: (match[2], line) for line in lines if (match := re.match(r"([\w.-]+)\s*>=\s*([\d.]+)", line))}
    for name, (least, line) in needs.items():
        yield _version(name, least, optional="extra" in line)


def _version(name: str, least: str, *, optional: bool) -> Check:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check("note" if optional else "bad", name, f"not installed; needs {least} where its program runs")
    return Check("ok" if _numbers(found) >= _numbers(least) else "bad", name, f"{found}, needs {least}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _settings(role: str, config: Path | None) -> Check:
    flags = {"target": "127.0.0.1:0"} if role == "gateway" else {}
    try:
        load(ROLES[role], flags=flags, file=config)
    except TandemError as error:
        return Check("bad", f"settings of {role}", str(error))
    return Check("ok", f"settings of {role}", "legal")


def _model(config: Path | None) -> Iterator[Check]:
    try:
        folder = load(TargetSettings, flags={}, file=config).model
    except TandemError:
        return
    try:
        from services.engine.engine import Engine
        from services.shipped.prepare import default_model
        from services.text.files import TokenizerFiles
        from services.text.template import ChatTemplate
        from services.text.tokenizer import Tokenizer
    except ImportError as error:
        yield Check("note", "model", f"not looked at, for the target's packages are not here: {error}")
        return
    what = "model folder"
    try:
        folder = default_model(cache_root()) if folder == EMBEDDED else folder
        what = "weights"
        Engine.check(folder)
        yield Check("ok", what, f"{folder}: every header fits its config.json")
        what = "tokenizer"
        files = TokenizerFiles.read(folder)
        yield Check("ok", what, f"{Tokenizer(files).vocab_size} ids")
        what = "chat template"
        template = ChatTemplate.of(files)
        yield Check("ok" if template else "note", what, "usable" if template else "none: chats are refused")
    except TandemError as error:
        yield Check("bad", what, str(error))


def _ports(config: Path | None, *, running: bool) -> Iterator[Check]:
    """Those that `tandem serve` would take."""
    try:
        settings = load(ServeSettings, flags={}, file=config)
    except TandemError:
        return
    grpc_port = settings.grpc_port if settings.grpc_port is not None else settings.port and settings.port + 1
    for what, port in (("HTTP port", settings.port), ("gRPC port", grpc_port)):
        if _free(port):
            yield Check("ok", what, f"{port} is free" if port else "a free one is taken")
        else:
            yield Check("note" if running else "bad", what, f"{port} is in use")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def _system(address: str) -> AsyncIterator[Check]:
    try:
        async with gateway(address) as stub:
            target = (await stub.Describe(pb.DescribeRequest(), timeout=TIMEOUT_S)).target
    except Unavailable as error:
        yield Check("note", "running system", str(error))
        return
    except TandemError as error:
        yield Check("bad", "running system", f"gateway at {address}: {error}")
        return
    yield Check("ok", "running system", f"{target.model} at {address}, {target.context_length} tokens of context")
    promise = f"promised for {target.fingerprint}" if target.exact else f"not promised: {target.inexact_reason}"
    yield Check("ok" if target.exact else "bad", "exactness", promise)
    for check in _drafters(target):
        yield check
    yield await _audited(address)


def _drafters(target: TargetServiceDescribeResponse) -> Iterator[Check]:
    if not target.drafters:
        yield Check("note", "drafters", "none: the target has no drafter, or it is away")
    for each in target.drafters:
        yield Check("ok" if each.up else "note", f"drafter {MODES.name(each.mode)}", each.refusal or "up")


async def _audited(address: str) -> Check:
    try:
        async with gateway(address) as stub:
            report = [message async for message in stub.Generate(AUDITED, timeout=AUDIT_TIMEOUT_S)][-1].report
    except TandemError as error:
        return Check("bad", "audit", str(error))
    if not report.HasField("audit"):
        return Check("bad", "audit", "the answer was not audited; try again")
    if report.audit.HasField("differs_at"):
        return Check("bad", "audit", f"drafting changed the answer at token {report.audit.differs_at}")
    drafts = f"{report.accepted} of {report.drafted} drafts accepted"
    return Check("ok", "audit", f"{report.audit.checked} tokens are those of plain decoding, {drafts}")
