"""Every response names its request."""

import asyncio

import pytest

from tests.gateway.peers import BODY, frames
from tests.gateway.scripted_target import ends

pytestmark = pytest.mark.anyio


async def test_a_clients_own_id_comes_back_and_reaches_the_target(gateway):
    async with gateway() as peers:
        for stream in (False, True):
            answer = await peers.http.post(
                "/v1/chat/completions", json=BODY | {"stream": stream}, headers={"X-Request-Id": "mine-1"}
            )
            assert (answer.headers["x-request-id"], answer.headers["request-id"]) == ("mine-1", "mine-1")
    assert [call.request.request_id for call in peers.target.calls] == ["mine-1"] * 2


async def test_two_answers_to_one_id_are_still_two_answers(gateway):
    async with gateway() as peers:
        ids = {
            (await peers.http.post("/v1/chat/completions", json=BODY, headers={"X-Request-Id": "mine"})).json()["id"]
            for _ in range(2)
        }
    assert len(ids) == 2


@pytest.mark.parametrize("given", [None, "", "a b", "é", "x" * 201, "tab\there"])
async def test_without_a_fit_one_there_is_a_new_one(gateway, given):
    headers = {} if given is None else {"X-Request-Id": given.encode()}
    async with gateway() as peers:
        answers = [await peers.http.post("/v1/chat/completions", json=BODY, headers=headers) for _ in range(2)]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert ids == [call.request.request_id for call in peers.target.calls]
    assert len(set(ids)) == 2
    assert given not in ids


async def test_refusals_probes_and_bugs_are_named_too(gateway):
    async with gateway(lambda request: [ZeroDivisionError()]) as peers:
        answers = [
            await peers.chat(n=0),
            await peers.chat(),
            await peers.http.get("/live"),
            await peers.http.get("/nowhere"),
            await peers.http.get("/v1/chat/completions"),
        ]
    assert [answer.status_code for answer in answers] == [400, 500, 200, 404, 405]
    assert all(answer.headers["x-request-id"] for answer in answers)


async def test_openais_client_shows_it(gateway):
    async with gateway() as peers:
        answer = await peers.openai.chat.completions.create(**BODY, extra_headers={"X-Request-Id": "mine"})
    assert answer._request_id == "mine"


async def test_requests_at_once_keep_their_own(gateway):
    def script(request):
        return [ends(request.request_id)]

    async def ask(peers, id):
        answer = await peers.http.post(
            "/v1/chat/completions", json=BODY | {"stream": True}, headers={"X-Request-Id": id}
        )
        return "".join(c["choices"][0]["delta"].get("content", "") for c in frames(answer)[:-1])

    async with gateway(script) as peers:
        names = [f"id-{index}" for index in range(8)]
        assert await asyncio.gather(*(ask(peers, name) for name in names)) == names
