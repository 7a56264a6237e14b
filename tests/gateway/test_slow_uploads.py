"""A client that takes too long to send its headers or its body is told so, and its connection is closed."""

import asyncio
import json

import httpx
import pytest

from tests.gateway.peers import BODY

pytestmark = pytest.mark.anyio

HEAD = "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Request-Id: mine\r\n{}\r\n\r\n"


async def sent(base_url: httpx.URL, *parts: bytes) -> tuple[list[str], dict]:
    """What comes for a request that is never finished: the lines of its head and the body, up to the end of the
    connection."""
    reader, writer = await asyncio.open_connection(base_url.host, base_url.port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return head.decode().lower().split("\r\n"), json.loads(body)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/chat/completions", {"type": "invalid_request_error", "code": "request_timeout", "param": None}),
        ("/v1/completions", {"type": "invalid_request_error", "code": "request_timeout", "param": None}),
        ("/v1/messages", {"type": "timeout_error"}),
        ("/v1/messages/count_tokens", {"type": "timeout_error"}),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
async def test_a_body_that_does_not_come_is_408_in_the_shape_of_its_api(gateway, path, error, length):
    async with gateway(upload_timeout_s=0.05) as peers:
        start = b'{"model": ' if length.startswith("Content") else b'a\r\n{"model": \r\n'
        head, body = await sent(peers.http.base_url, HEAD.format(path, length).encode(), start)
        assert not peers.target.calls
    assert head[0].startswith("http/1.1 408 ")
    assert {"connection: close", "x-request-id: mine"} <= set(head)
    message = body["error"].pop("message")
    assert "0.05 seconds" in message
    assert body["error"] == error


ANSWERED = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("begun", [b"G", b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_headers_that_do_not_end_are_408(gateway, begun):
    async with gateway(upload_timeout_s=0.05) as peers:
        head, body = await sent(peers.http.base_url, begun)
    assert head[0] == "http/1.1 408 request timeout"
    assert "connection: close" in head
    assert any(line.startswith("x-request-id: ") for line in head)
    assert body["error"]["code"] == "request_timeout"
    assert "headers did not arrive within 0.05 seconds" in body["error"]["message"]


async def test_so_are_those_of_a_second_request(gateway):
    async with gateway(upload_timeout_s=0.05) as peers:
        reader, writer = await asyncio.open_connection(peers.http.base_url.host, peers.http.base_url.port)
        writer.write(ANSWERED)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split()[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
        writer.write(ANSWERED[:9])
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_connection_that_never_says_anything_is_closed(gateway):
    async with gateway(upload_timeout_s=0.05) as peers:
        reader, writer = await asyncio.open_connection(peers.http.base_url.host, peers.http.base_url.port)
        assert await reader.read() == b""
        writer.close()


async def test_a_body_in_pieces_is_as_good_as_whole(gateway):
    whole = json.dumps(BODY).encode()

    async def pieces():
        for place in range(len(whole)):
            yield whole[place : place + 1]

    async with gateway(upload_timeout_s=60) as peers:
        assert (await peers.raw(pieces())).status_code == 200
