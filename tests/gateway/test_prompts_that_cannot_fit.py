"""A prompt that is much too long is refused before it is encoded, with the error of one that is a little too long."""

import pytest
from tandem.v1 import generation_pb2 as pb

from services.errors import ContextTooLong
from services.text.tokenizer import Tokenizer
from services.wire.status import raising

pytestmark = pytest.mark.anyio

LONGEST, CONTEXT = 12, 512
"""Of the scripted target: bytes of `<|im_start|>`, and tokens."""
LONG = "x" * (LONGEST * CONTEXT)


@pytest.fixture
def unencoded(monkeypatch):
    monkeypatch.setattr(Tokenizer, "encode_pieces", lambda self, pieces: pytest.fail("it was encoded"))


@pytest.mark.usefixtures("unencoded")
async def test_it_is_refused_over_http_before_it_is_encoded(gateway):
    message = {"messages": [{"role": "user", "content": LONG}]}
    async with gateway() as peers:
        answers = [await peers.chat(**message), await peers.complete(prompt=LONG), await peers.messages(**message)]
        assert not peers.target.calls
    assert [answer.status_code for answer in answers] == [400] * 3
    chat, completion, of_anthropic = [answer.json()["error"] for answer in answers]
    assert (chat["code"], chat["param"]) == ("context_length_exceeded", "messages")
    assert (completion["code"], completion["param"]) == ("context_length_exceeded", "prompt")
    assert of_anthropic["type"] == "invalid_request_error"
    assert f"at least {CONTEXT} tokens, but the context holds {CONTEXT}" in completion["message"]


@pytest.mark.usefixtures("unencoded")
async def test_it_is_refused_over_grpc_before_it_is_encoded(gateway):
    async with gateway() as peers:
        with pytest.raises(ContextTooLong) as refused, raising():
            await peers.stub.Generate(pb.GenerateRequest(text=LONG)).read()
    assert refused.value.field == "text"


async def test_one_that_might_fit_is_encoded_and_refused_with_its_length(gateway):
    async with gateway() as peers:
        error = (await peers.complete(prompt=LONG[: LONGEST * (CONTEXT - 1)])).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
    assert f" {LONGEST * (CONTEXT - 1)} tokens" in error["message"]


async def test_its_tokens_can_be_counted_all_the_same(gateway):
    async with gateway() as peers:
        body = {"model": "tiny", "messages": [{"role": "user", "content": LONG}]}
        counted = (await peers.http.post("/v1/messages/count_tokens", json=body)).json()["input_tokens"]
    assert counted > len(LONG)
