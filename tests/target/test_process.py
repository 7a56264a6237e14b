"""The target as a program: what it makes of its settings."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
import torch
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from tandem.v1 import target_pb2 as pb
from tandem.v1.target_pb2_grpc import TargetServiceStub
from tandem.v1.types_pb2 import Sampling, Stopping

from services.config.settings import TargetSettings
from services.engine.engine import Engine
from services.errors import BadCheckpoint, TandemError, Unavailable
from services.target import process
from services.target.process import load
from services.wire.clients import target_channel
from services.wire.codec import FINISH_KINDS
from services.wire.status import raising
from tests.engine.tiny import write
from tests.target.harness import files, tokenizer

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
TOKENS = 400


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def running(tmp_path, monkeypatch):
    """The whole program in this process: its channel, and a function that asks it to stop as a signal would."""
    write(tmp_path / "model")
    for name, content in files().files.items():
        (tmp_path / "model" / name).write_bytes(content)
    monkeypatch.setenv("TANDEM_CACHE", str(tmp_path / "cache"))

    @asynccontextmanager
    async def run(**settings):
        stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
        monkeypatch.setattr(process, "stop_requested", stop.wait)
        monkeypatch.setattr(process, "announce", lambda role, where: address.set_result(where))
        given = {"model": tmp_path / "model", "dtype": "fp32", "threads": 1, "listen": "127.0.0.1:0"}
        program = asyncio.create_task(process.run(TargetSettings(**given | settings)))
        async with target_channel(await address) as channel:
            yield channel, stop.set
            stop.set()
            await program

    return run


async def to_the_finish(stream) -> list[pb.TargetServiceGenerateResponse]:
    seen = [await stream.read()]
    while not seen[-1].HasField("finish"):
        seen.append(await stream.read())
    return seen


async def until(watch, status) -> None:
    while (await watch.read()).status != status:
        pass


def call() -> pb.TargetServiceGenerateRequest:
    sampling, stopping = Sampling(temperature=0, seed=1), Stopping(ignore_eos=True)
    return pb.TargetServiceGenerateRequest(
        prompt_ids=[3, 1, 4], max_tokens=TOKENS, sampling=sampling, stopping=stopping
    )


@pytest.mark.anyio
async def test_that_a_model_has_no_chat_template_is_said_before_it_is_loaded(tmp_path, caplog, monkeypatch):
    def check(folder):
        raise BadCheckpoint("far enough")

    for name, content in files().files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(Engine, "check", check)
    with pytest.raises(BadCheckpoint, match="far enough"):
        await process.run(TargetSettings(model=tmp_path))
    assert f"{tmp_path} has no chat template; chats will be refused" in caplog.messages


@pytest.mark.anyio
async def test_what_runs_when_it_is_asked_to_stop_is_finished_and_nothing_new_begins(running):
    async with running(grace_s=600) as (channel, stop):
        watch = HealthStub(channel).Watch(HealthCheckRequest(service="tandem.v1.TargetService"))
        await until(watch, SERVING)
        stub = TargetServiceStub(channel)
        streams = [stub.Generate(call()) for _ in range(4)]
        begun = [await stream.read() for stream in streams]
        stop()
        await until(watch, NOT_SERVING)
        with pytest.raises(Unavailable), raising():
            await stub.Generate(call()).read()
        answers = [[first, *await to_the_finish(stream)] for first, stream in zip(begun, streams, strict=True)]
    for seen in answers:
        assert FINISH_KINDS.name(seen[-1].finish.kind) == "length"
        assert sum(len(message.tokens) for message in seen) == TOKENS


@pytest.mark.anyio
async def test_what_outlives_the_grace_ends_with_an_error_and_the_program_ends(running):
    async with running(grace_s=0) as (channel, stop):
        watch = HealthStub(channel).Watch(HealthCheckRequest(service="tandem.v1.TargetService"))
        await until(watch, SERVING)
        stream = TargetServiceStub(channel).Generate(call())
        await stream.read()
        stop()
        with pytest.raises(TandemError), raising():
            await to_the_finish(stream)


def test_a_model_whose_folder_cannot_be_written_is_measured_only_once(tmp_path, monkeypatch, caplog):
    folder, cache, threads = tmp_path / "model", tmp_path / "cache", torch.get_num_threads()
    write(folder)
    (folder / ".tandem").write_text("in the way")
    monkeypatch.setenv("TANDEM_CACHE", str(cache))
    caplog.set_level(logging.INFO, logger="services.target.process")
    settings = TargetSettings(model=folder, dtype="fp32", threads=threads, cache_rows=64)
    said = []
    for _ in range(2):
        caplog.clear()
        load(settings, tokenizer())
        said.append({word for word in ("numerics", "weights", "check") if f"loading: {word} " in caplog.text})
    assert len(list(cache.glob("numerics/*.json"))) == 1
    assert said == [{"numerics", "weights", "check"}, {"weights"}]
