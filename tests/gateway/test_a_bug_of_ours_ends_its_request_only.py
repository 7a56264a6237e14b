"""A bug that shows in the middle of an answer: an error in the API's own shape, the end of the connection, and nothing
left behind."""

import asyncio
import json

import pytest
from tandem.v1 import generation_pb2 as pb

from services.errors import Internal
from services.gateway.visible import VisibleText
from services.wire.status import raising
from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio

ROUTES = {"/v1/chat/completions": BODY, "/v1/completions": PROMPT, "/v1/messages": MESSAGES}


@pytest.fixture
async def peers(gateway, monkeypatch):
    """The text of a third round cannot be made. Whatever was asked must end at the target too, and what is asked next
    is answered."""
    push, never, third = VisibleText.push, asyncio.Event(), says("c")

    def fails(text, ids):
        if ids == third.ids:
            raise ZeroDivisionError("secret")
        return push(text, ids)

    monkeypatch.setattr(VisibleText, "push", fails)
    async with gateway(lambda request: [says("a"), says("b"), third, never]) as peers:
        yield peers
        for call in peers.target.calls:
            await call.ended.wait()
        assert {call.outcome for call in peers.target.calls} == {"cancelled"}
        peers.target.play(lambda request: [ends("next")])
        assert (await peers.chat()).json()["choices"][0]["message"]["content"] == "next"


@pytest.mark.parametrize("path", ROUTES)
async def test_a_stream_ends_with_an_error_of_its_api(peers, path, caplog):
    answer = await peers.http.post(path, json=ROUTES[path] | {"stream": True})
    *before, last = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == "internal error"
    assert len([line for line in before if '"a"' in line or '"b"' in line]) == 2
    assert "[DONE]" not in answer.text
    assert "message_stop" not in answer.text
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text, "who runs the server is told"


@pytest.mark.parametrize("path", ROUTES)
async def test_a_whole_answer_is_an_internal_error(peers, path):
    answer = await peers.http.post(path, json=ROUTES[path])
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "internal error"


async def test_a_grpc_call_ends_with_internal(peers):
    call = peers.stub.Generate(pb.GenerateRequest(text="hi"))
    assert [(await call.read()).text for _ in range(2)] == ["a", "b"]
    with pytest.raises(Internal) as failed, raising():
        await call.read()
    assert "secret" not in str(failed.value)
