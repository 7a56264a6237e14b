"""A caller's trace reaches the target, whichever face it comes through; one that is malformed fails nothing."""

import pytest
from tandem.v1 import generation_pb2 as pb

from tests.gateway.peers import BODY, MESSAGES, PROMPT

pytestmark = pytest.mark.anyio

TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "rojo=00f0,congo=t61"}


def traces(peers) -> list[dict[str, str]]:
    """Of the calls that the target saw."""
    return [{name: call.metadata[name] for name in TRACE if name in call.metadata} for call in peers.target.calls]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", BODY),
        ("/v1/chat/completions", BODY | {"stream": True, "n": 2}),
        ("/v1/completions", PROMPT | {"prompt": ["a", "b"]}),
        ("/v1/messages", MESSAGES),
    ],
)
async def test_an_http_client_s_trace_reaches_every_call_to_the_target(gateway, path, body):
    async with gateway() as peers:
        answer = await peers.http.post(path, json=body, headers=TRACE)
        assert answer.status_code == 200
        assert traces(peers) == [TRACE] * (2 if path == "/v1/completions" or "n" in body else 1)


async def test_a_grpc_client_s_trace_reaches_the_target(gateway):
    async with gateway() as peers:
        async for _ in peers.stub.Generate(pb.GenerateRequest(text="hi"), metadata=tuple(TRACE.items())):
            pass
        assert traces(peers) == [TRACE]


@pytest.mark.parametrize("parent", ["", "00-1-2-3", "00-" + "0" * 32 + "-00f067aa0ba902b7-01"])
async def test_a_malformed_trace_is_left_out_and_the_request_is_answered(gateway, parent):
    async with gateway() as peers:
        assert (
            await peers.http.post("/v1/completions", json=PROMPT, headers=TRACE | {"traceparent": parent})
        ).is_success
        async for _ in peers.stub.Generate(pb.GenerateRequest(text="hi"), metadata=(("traceparent", parent),)):
            pass
        assert traces(peers) == [{}, {}]


async def test_without_a_trace_none_is_made_up(gateway):
    async with gateway() as peers:
        assert (await peers.chat()).is_success
        assert traces(peers) == [{}]
