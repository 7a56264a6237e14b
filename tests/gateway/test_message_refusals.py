"""What is refused to Anthropic's clients, and how they read it."""

import anthropic
import pytest

from services.errors import InvalidRequest, Overloaded, Unavailable
from tests.gateway.faults import path_of
from tests.gateway.peers import MESSAGES

pytestmark = pytest.mark.anyio


def turn(role, *parts) -> dict:
    return {"messages": [*MESSAGES["messages"], {"role": role, "content": list(parts)}]}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("messages[1].content[1].type", turn("assistant", {"type": "text", "text": "a"}, {"type": "tool_use"})),
        ("messages[1].content[0].type", turn("user", {"type": "tool_result", "tool_use_id": "a", "content": "b"})),
        ("messages[1].content[0].type", turn("user", {"type": "image", "source": {"type": "url", "url": "a"}})),
        ("messages[1].content[0].text", turn("user", {"type": "text"})),
        ("messages[1].role", turn("tool", {"type": "text", "text": "a"})),
        ("system[1].type", {"system": [{"type": "text", "text": "a"}, {"type": "image"}]}),
        ("stop_sequences[1]", {"stop_sequences": ["a", ""]}),
        ("tools", {"tools": [{"name": "a"}]}),
        ("thinking", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("min_tokens", {"min_tokens": 51}),
        ("speculation.bands[0].modes", {"speculation": {"bands": [{}]}}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
async def test_what_is_wrong_or_not_there_is_refused_by_its_path(gateway, path, fields):
    async with gateway() as peers:
        assert path_of(await peers.messages(**fields)) == path
        assert peers.target.calls == []


REFUSALS = [
    (Overloaded("the queue is full", retry_after_s=1.5), 429, "rate_limit_error", anthropic.RateLimitError),
    (InvalidRequest("must be nicer", field="stopping.strings[0]"), 400, "invalid_request_error", None),
    (Unavailable("loading", retry_after_s=1.5), 529, "overloaded_error", anthropic.InternalServerError),
    (ZeroDivisionError("secret"), 500, "api_error", anthropic.InternalServerError),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "kind", "raised"), REFUSALS, ids=lambda each: str(each)[:20])
async def test_a_refusal_is_written_as_anthropic_writes_it(gateway, error, status, kind, raised, stream):
    async with gateway(lambda request: [error]) as peers:
        answer = await peers.messages(stream=stream)
        with pytest.raises(raised or anthropic.BadRequestError):
            await peers.anthropic.messages.create(**MESSAGES, stream=stream)
    assert answer.status_code == status
    told = answer.json()
    assert (told["type"], told["error"]["type"]) == ("error", kind)
    assert set(told) == {"type", "error", "request_id"}
    assert told["request_id"] == answer.headers["request-id"] == peers.target.calls[0].request.request_id
    assert set(told["error"]) == {"type", "message"}
    assert "secret" not in answer.text
    assert answer.headers.get("retry-after") == ("2" if status in (429, 529) else None)
    if status == 400:
        assert "stop_sequences" in told["error"]["message"]


async def test_the_frameworks_refusals_have_the_same_shape(gateway):
    async with gateway() as peers:
        answers = [
            await peers.http.get("/v1/messages"),
            await peers.http.post("/v1/messages", content=b"x", headers={"Content-Type": "text/plain"}),
            await peers.http.post("/v1/messages/nowhere", json={}),
            await peers.raw(b"[]", path="/v1/messages"),
        ]
        other = await peers.http.get("/v1/messages_of_another_kind")
    assert [answer.status_code for answer in answers] == [405, 415, 404, 400]
    types = [answer.json()["error"]["type"] for answer in answers]
    assert types == ["invalid_request_error", "invalid_request_error", "not_found_error", "invalid_request_error"]
    assert "code" in other.json()["error"], "it is not of this API"
