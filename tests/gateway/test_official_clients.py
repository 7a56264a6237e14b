"""The packages that OpenAI and Anthropic publish, against every route, in every mode."""

import pytest

from services.wire.codec import MODES
from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import ends, says

pytestmark = pytest.mark.anyio


async def chat(peers, **more):
    answer = await peers.openai.chat.completions.create(**BODY, **more)
    return answer.choices[0].message.content, answer.speculation


async def chat_stream(peers, **more):
    chunks = [chunk async for chunk in await peers.openai.chat.completions.create(**BODY, **more, stream=True)]
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks), chunks[-1].speculation


async def completion(peers, **more):
    answer = await peers.openai.completions.create(**PROMPT, **more)
    return answer.choices[0].text, answer.speculation


async def completion_stream(peers, **more):
    # Strictly, the package has no null for a reason that is still to come, though OpenAI sends it.
    usual = peers.openai.with_options(_extra_kwargs={"_strict_response_validation": False})
    chunks = [chunk async for chunk in await usual.completions.create(**PROMPT, **more, stream=True)]
    return "".join(chunk.choices[0].text for chunk in chunks), chunks[-1].speculation


async def message(peers, **more):
    answer = await peers.anthropic.messages.create(**MESSAGES, **more)
    return answer.content[0].text, answer.speculation


async def message_stream(peers, **more):
    events = [event async for event in await peers.anthropic.messages.create(**MESSAGES, **more, stream=True)]
    texts = [event.delta.text for event in events if event.type == "content_block_delta"]
    return "".join(texts), events[-2].speculation


@pytest.mark.parametrize("ask", [chat, chat_stream, completion, completion_stream, message, message_stream])
async def test_every_way_to_ask_gives_the_text_and_a_report_in_every_mode(gateway, ask):
    script = [says("Hel", origin="first"), says("lo", origin="accepted"), ends("!")]
    async with gateway(lambda request: script) as peers:
        for mode in MODES.legal:
            text, report = await ask(peers, extra_body={"speculation": {"mode": mode, "stats": True}})
            assert text == "Hello!"
            assert (report["requested"], report["by_mode"]["ngram"]["accepted"]) == (mode, 2)
