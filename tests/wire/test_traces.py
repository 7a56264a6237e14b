"""Which headers are a trace, by the examples and the grammar of W3C Trace Context."""

import logging

import grpc
import pytest
from tandem.v1 import drafter_pb2 as pb

from services.wire.trace import trace_of

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"


def test_parent_and_state_are_passed_on_as_they_are():
    headers = [("host", "here"), ("traceparent", PARENT), ("tracestate", STATE)]
    assert trace_of(headers) == (("traceparent", PARENT), ("tracestate", STATE))


@pytest.mark.parametrize(
    "parent", [PARENT, PARENT[:-1] + "0", f"cc{PARENT[2:]}", f"cc{PARENT[2:]}-what-the-future-has"]
)
def test_a_parent_may_be_of_a_later_version(parent):
    assert trace_of([("traceparent", parent)]) == (("traceparent", parent),)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "0",
        PARENT + "-00",
        "ff" + PARENT[2:],
        "0" + PARENT,
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        PARENT.replace("00f067aa0ba902b7", "0" * 16),
        PARENT.replace("-", "_"),
        PARENT.replace("4bf9", "4bg9"),
        PARENT + "\n",
        f"cc{PARENT[2:]}-" + "x" * 1000,
        PARENT.encode(),
    ],
)
def test_a_malformed_parent_is_no_trace_and_takes_the_state_with_it(parent):
    assert trace_of([("traceparent", parent), ("tracestate", STATE)]) == ()


def test_two_parents_are_none():
    assert trace_of([("traceparent", PARENT), ("traceparent", PARENT)]) == ()


def test_a_state_alone_is_no_trace():
    assert trace_of([("tracestate", STATE)]) == ()


@pytest.mark.parametrize(
    ("states", "passed"),
    [
        (["a=1", "b=2"], "a=1,b=2"),
        ([" a=1 ,, b=2,"], "a=1,b=2"),
        (["fw529a3039@dt=FfAAAAAA"], "fw529a3039@dt=FfAAAAAA"),
        (["0key/*-_=!~<>; x"], "0key/*-_=!~<>; x"),
        ([",".join(f"k{i}=v" for i in range(32))], ",".join(f"k{i}=v" for i in range(32))),
    ],
)
def test_a_state_is_a_list_of_members(states, passed):
    trace = trace_of([("traceparent", PARENT), *(("tracestate", state) for state in states)])
    assert trace == (("traceparent", PARENT), ("tracestate", passed))


@pytest.mark.parametrize(
    "state",
    [
        "",
        "a",
        "a=",
        "=1",
        "A=1",
        "a=1=2",
        "a=\u00e9",
        "a=\x7f",
        "a=1\r\nx: y",
        "a@=1",
        "@a=1",
        "a=" + "x" * 257,
        ",".join(f"k{i}=v" for i in range(33)),
        ",".join(f"k{i}=" + "v" * 250 for i in range(32)),
    ],
)
def test_a_malformed_state_is_dropped_and_the_parent_stays(state):
    assert trace_of([("traceparent", PARENT), ("tracestate", state)]) == (("traceparent", PARENT),)


@pytest.mark.anyio
async def test_a_call_that_fails_for_a_bug_of_ours_is_logged_with_its_trace_parent(running, caplog):
    async def fail():
        raise KeyError("bug")

    async with running(fail) as peers:
        for metadata in (("traceparent", PARENT),), ():
            with caplog.at_level(logging.ERROR), pytest.raises(grpc.aio.AioRpcError):
                await peers.stub.Describe(pb.DrafterServiceDescribeRequest(), metadata=metadata)
    said = [record.getMessage() for record in caplog.records if record.name == "services.wire.status"]
    assert said == [f"a call failed (traceparent {PARENT})", "a call failed"]
