"""How long prompt and answer may be together, and by which name the answer's length goes."""

import pytest

pytestmark = pytest.mark.anyio


async def test_a_prompt_past_the_context_is_refused_with_both_lengths(gateway):
    message = {"messages": [{"role": "user", "content": "x" * 600}]}
    async with gateway() as peers:
        for fields in (message, message | {"max_tokens": 5}):
            answer = await peers.chat(**fields)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
            assert "512" in error["message"]
        assert peers.target.calls == []


async def test_prompt_and_output_may_fill_the_context_exactly(gateway):
    async with gateway() as peers:
        await peers.chat()
        room = 512 - len(peers.target.calls[0].request.prompt_ids)
        assert (await peers.chat(max_tokens=room)).status_code == 200
        answer = await peers.chat(max_tokens=room + 1)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert answer.json()["error"]["param"] == "max_tokens"
        for huge in (2**31, 10**30):
            error = (await peers.chat(max_completion_tokens=huge)).json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "max_completion_tokens")


async def test_the_newer_name_of_max_tokens_wins_over_the_older(gateway):
    async with gateway() as peers:
        assert (await peers.chat(max_tokens=9, max_completion_tokens=5)).status_code == 200
        assert (await peers.chat(max_tokens=5, max_completion_tokens=None)).status_code == 200
    assert [call.request.max_tokens for call in peers.target.calls] == [5, 5]
