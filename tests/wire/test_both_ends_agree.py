import subprocess
import sys

import pytest
from tandem.v1 import drafter_pb2 as pb

from services.errors import TooLarge
from services.wire.limits import CLIENT_OPTIONS, MAX_MESSAGE_BYTES, SERVER_OPTIONS
from services.wire.status import raising

CLIENT, SERVER = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)


def test_servers_tolerate_the_pings_of_our_clients():
    assert CLIENT["grpc.keepalive_time_ms"] >= 2 * SERVER["grpc.http2.min_ping_interval_without_data_ms"]
    for end in (CLIENT, SERVER):
        assert end["grpc.keepalive_permit_without_calls"] == 1
        assert end["grpc.http2.max_pings_without_data"] == 0
        assert end["grpc.keepalive_timeout_ms"] < end["grpc.keepalive_time_ms"]


def test_what_one_end_may_send_the_other_takes():
    for option in ("grpc.max_send_message_length", "grpc.max_receive_message_length", "grpc.max_metadata_size"):
        assert CLIENT[option] == SERVER[option]


def turn_of(size):
    """A request of exactly `size` bytes on the wire."""
    request = pb.DraftRequest(hello=pb.Hello(weights_fingerprint="x" * (size - 20)))
    request.hello.weights_fingerprint += "x" * (size - request.ByteSize())
    assert request.ByteSize() == size
    return request


@pytest.mark.anyio
@pytest.mark.parametrize("size", [4_194_303, 4_194_305, MAX_MESSAGE_BYTES - 1, MAX_MESSAGE_BYTES])
async def test_a_message_up_to_the_limit_is_served(running, size):
    async with running() as peers:
        answer = await peers.stub.Draft(iter([turn_of(size)])).read()
    assert answer.WhichOneof("message") == "proposals"


@pytest.mark.anyio
async def test_a_message_over_the_limit_is_refused_and_the_next_call_is_served(running):
    async with running() as peers:
        with pytest.raises(TooLarge), raising():
            await peers.stub.Draft(iter([turn_of(MAX_MESSAGE_BYTES + 1)])).read()
        assert (await peers.stub.Describe(pb.DrafterServiceDescribeRequest())).instance == "echo"


def test_importing_the_clients_makes_no_channel_and_no_torch():
    code = """
import grpc.aio, sys
def never(*args, **kwargs): raise AssertionError("a channel was made")
grpc.aio.insecure_channel = grpc.insecure_channel = never
import services.wire.clients, services.wire.serving, services.wire.codec
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
