"""Bodies that are no chat request at all."""

import asyncio
import json

import pytest

from tests.gateway.peers import BODY

pytestmark = pytest.mark.anyio

LIMIT = 4096


def padded(size: int) -> bytes:
    """A valid body of exactly this many bytes."""
    body = json.dumps(BODY | {"pad": ""}).encode()
    return body[:-2] + b"x" * (size - len(body)) + body[-2:]


def shaped(answer, status: int, code: str | None) -> str:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    return error["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": "tiny",}', "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"model": "\xff"}', "not UTF-8"),
        (b"\xff\xfe{\x00", "not UTF-8"),
        (b'{"model": "tiny", "model": "other"}', "given more than once"),
        (b'{"speculation": {"mode": "none", "mode": "auto"}}', "given more than once"),
        (b'{"a_\\ud800": 1, "a_\\ud800": 2}', "given more than once"),
        (b'{"unknown": NaN}', "unknown"),
        (b'{"unknown": [1, {"x": -Infinity}]}', "unknown[1].x"),
        (b"[" * 10_000, "nested too deeply"),
        (b'{"a":' * 10_000, "nested too deeply"),
        (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON"),
    ],
    ids=lambda each: str(each)[:24],
)
async def test_what_is_not_one_json_object_is_400(gateway, body, words):
    async with gateway() as peers:
        assert words in shaped(await peers.raw(body), 400, None)
        assert (await peers.chat()).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
async def test_another_content_type_is_415(gateway, kind):
    async with gateway() as peers:
        answer = await peers.raw(json.dumps(BODY).encode(), **{"Content-Type": kind})
    assert "application/json" in shaped(answer, 415, "unsupported_media_type")


async def test_a_content_type_may_name_its_charset(gateway):
    async with gateway() as peers:
        answer = await peers.raw(json.dumps(BODY).encode(), **{"Content-Type": "Application/JSON; charset=utf-8"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [("/nowhere", 404, "not_found"), ("/v1", 404, "not_found"), ("/ready/", 404, "not_found")],
)
async def test_an_unknown_path_is_404_in_the_same_shape(gateway, path, status, code):
    async with gateway() as peers:
        assert path in shaped(await peers.http.get(path), status, code)


async def test_a_wrong_method_is_405_and_says_which_is_right(gateway):
    async with gateway() as peers:
        answer = await peers.http.get("/v1/chat/completions")
    shaped(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413), (16 * 2**20, 413)])
async def test_a_body_over_the_limit_is_413_whether_or_not_it_says_its_length(gateway, size, status, chunked):
    whole = padded(size)

    async def pieces():
        for start in range(0, size, 2**16):
            yield whole[start : start + 2**16]

    async with gateway(max_body_bytes=LIMIT) as peers:
        answer = await peers.raw(pieces() if chunked else whole)
        if status == 413:
            assert str(LIMIT) in shaped(answer, 413, "request_too_large")
        assert answer.status_code == status
        assert (await peers.chat()).status_code == 200


async def test_a_length_over_the_limit_is_refused_before_the_body_comes(gateway):
    async with gateway(max_body_bytes=LIMIT) as peers:
        reader, writer = await asyncio.open_connection(peers.http.base_url.host, peers.http.base_url.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n"
        )
        assert await reader.readline() == b"HTTP/1.1 413 Request Entity Too Large\r\n"
        writer.close()
        await writer.wait_closed()


HEADERS = 2**16
"""What the server reads of them; it hears the end of what a test sends, so that closing resets nothing."""
START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        (START + b"X: ").ljust(HEADERS + 1, b"x"),
        (START + b"X: y\r\n" * 10_000).ljust(HEADERS + 1, b"x"),
        START + b"no header\r\n\r\n",
        START + b"Content-Length: -1\r\n\r\n",
        START + b"X: \x00\r\n\r\n",
    ],
    ids=["no HTTP", "a long header", "many headers", "a line that is none", "a negative length", "a null byte"],
)
async def test_what_is_no_request_is_400_in_the_same_shape(gateway, sent):
    async with gateway() as peers:
        reader, writer = await asyncio.open_connection(peers.http.base_url.host, peers.http.base_url.port)
        writer.write(sent)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        assert (await peers.chat()).status_code == 200
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head.lower()
    assert b"x-request-id: " in head
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_a_body_that_never_ends_keeps_nobody_waiting(gateway):
    async with gateway() as peers:
        reader, writer = await asyncio.open_connection(peers.http.base_url.host, peers.http.base_url.port)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        await writer.drain()
        assert (await peers.chat()).status_code == 200
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""


@pytest.mark.parametrize("size", [4_194_303, 4_194_305])
async def test_a_body_within_the_limit_is_read_whatever_its_size(gateway, size):
    async with gateway() as peers:
        assert (await peers.raw(padded(size))).status_code == 200
