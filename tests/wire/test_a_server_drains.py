import asyncio
import json
import os
import signal

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tandem.v1 import drafter_pb2 as pb

from services.errors import BadConfig, DeadlineExceeded, TandemError, Unavailable
from services.wire.serving import announce, serving, stop_requested
from services.wire.status import raising

pytestmark = pytest.mark.anyio
ASK = pb.DrafterServiceDescribeRequest()
TURN = pb.DraftRequest(turn=pb.Turn(turn=1))
SERVICE = "tandem.v1.DrafterService"
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Held:
    """An act that stays inside the server until the test lets it go."""

    def __init__(self):
        self.entered, self.release, self.outcome = asyncio.Event(), asyncio.Event(), None

    async def __call__(self):
        self.entered.set()
        try:
            await self.release.wait()
            self.outcome = "finished"
        except asyncio.CancelledError:
            self.outcome = "cancelled"
            raise


async def test_health_tells_alive_from_ready(connected):
    async with connected() as peers:
        health = health_pb2_grpc.HealthStub(peers.channel)
        watched = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        seen = [(await watched.read()).status]
        await peers.server.ready()
        seen.append((await watched.read()).status)
        await peers.server.draining()
        seen.append((await watched.read()).status)
        alive = await health.Check(health_pb2.HealthCheckRequest(service=""))
        watched.cancel()
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]
    assert alive.status == SERVING


async def test_calls_are_unavailable_with_a_hint_while_loading_and_while_draining(connected):
    async with connected() as peers:
        with pytest.raises(Unavailable, match="loading") as loading, raising():
            await peers.stub.Describe(ASK)
        await peers.server.ready()
        assert (await peers.stub.Describe(ASK)).instance == "echo"
        await peers.server.draining()
        with pytest.raises(Unavailable, match="shutting down") as draining, raising():
            await peers.stub.Draft(iter([TURN])).read()
    assert loading.value.retry_after_s == draining.value.retry_after_s == 1.0


async def watching(peers):
    """A watch on the service's health that has been told it serves."""
    watch = health_pb2_grpc.HealthStub(peers.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert (await watch.read()).status == SERVING
    return watch


@pytest.mark.parametrize("method", ["Describe", "Draft"])
async def test_a_running_call_finishes_within_the_grace_and_no_new_one_starts(running, method):
    held = Held()
    async with running(held, grace_s=600.0) as peers:
        call = peers.stub.Describe(ASK) if method == "Describe" else peers.stub.Draft(iter([TURN]))
        await held.entered.wait()
        watch = await watching(peers)
        stopped = asyncio.create_task(peers.stop())
        assert (await watch.read()).status == NOT_SERVING
        with pytest.raises(Unavailable, match="shutting down"), raising():
            await peers.stub.Describe(ASK)
        held.release.set()
        answer = await (call if method == "Describe" else call.read())
        await stopped
    assert held.outcome == "finished"
    assert answer.ByteSize() > 0


@pytest.mark.parametrize("method", ["Describe", "Draft"])
async def test_a_call_that_outlives_the_grace_is_cancelled_and_has_ended_when_serving_returns(running, method):
    held = Held()
    async with running(held, grace_s=0.0) as peers:
        call = peers.stub.Describe(ASK) if method == "Describe" else peers.stub.Draft(iter([TURN]))
        await held.entered.wait()
        await peers.stop()
        assert held.outcome == "cancelled"
        with pytest.raises(TandemError), raising():
            await (call if method == "Describe" else call.read())


async def test_a_caller_that_leaves_cancels_its_call(running):
    held, ended = Held(), asyncio.Event()

    async def act():
        try:
            await held()
        finally:
            ended.set()

    async with running(act) as peers:
        call = peers.stub.Draft(iter([TURN]))
        await held.entered.wait()
        call.cancel()
        await ended.wait()
    assert held.outcome == "cancelled"


async def test_a_deadline_ends_the_call_on_both_sides(running):
    held = Held()
    async with running(held) as peers:
        with pytest.raises(DeadlineExceeded), raising():
            await peers.stub.Describe(ASK, timeout=0.05)
    assert held.outcome == ("cancelled" if held.entered.is_set() else None)


async def test_a_taken_port_is_a_bad_setting(connected):
    async with connected() as peers:
        with pytest.raises(BadConfig, match=peers.server.address):
            async with serving(peers.server.address, [], grace_s=0.0):
                pass


async def test_a_failing_body_stops_the_server_without_waiting_for_the_grace(running):
    held = Held()

    async def fail():
        async with running(held, grace_s=600.0) as peers:
            call = peers.stub.Describe(ASK)
            await held.entered.wait()
            raise ZeroDivisionError(call)

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert held.outcome == "cancelled"


async def test_reflection_lists_our_services(connected):
    async with connected() as peers:
        stub = reflection_pb2_grpc.ServerReflectionStub(peers.channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        answer = await stub.ServerReflectionInfo(iter([ask])).read()
    assert SERVICE in {service.name for service in answer.list_services_response.service}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_to_stop_once_and_leaves_the_handlers_as_they_were(number):
    before = signal.getsignal(number)
    waiting = asyncio.create_task(stop_requested())
    await asyncio.sleep(0)
    os.kill(os.getpid(), number)
    await waiting
    assert signal.getsignal(number) is before or signal.getsignal(number) == signal.default_int_handler


def test_the_announcement_is_one_line_of_json(capsys):
    announce("drafter", "127.0.0.1:4242")
    assert json.loads(capsys.readouterr().out) == {"role": "drafter", "address": "127.0.0.1:4242"}
