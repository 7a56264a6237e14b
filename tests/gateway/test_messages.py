"""What Anthropic's clients ask for, and what they get whole."""

import asyncio

import pytest

from services.gateway.anthropic.request import UNSUPPORTED
from tests.gateway.peers import MESSAGES, events
from tests.gateway.scripted_target import TOKENIZER, ends, reaches, says, stops

pytestmark = pytest.mark.anyio


def prompt_of(call) -> str:
    return TOKENIZER.decode(list(call.request.prompt_ids), skip_special=False)


async def test_an_answer_has_the_shape_that_anthropics_client_expects(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        answer = await peers.anthropic.messages.create(**MESSAGES, extra_body={"speculation": "ngram"})
    prompt = len(peers.target.calls[0].request.prompt_ids)
    assert answer.id.startswith("msg_")
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "tiny")
    assert [(block.type, block.text) for block in answer.content] == [("text", "Hello")]
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (prompt, 6)
    assert (answer.speculation["requested"], answer.speculation["fingerprint"]) == ("ngram", "fp-1")
    assert answer._request_id == peers.target.calls[0].request.request_id


@pytest.mark.parametrize(
    ("last", "reason", "sequence", "text"),
    [
        (ends(" end"), "end_turn", None, "so end"),
        (ends(), "end_turn", None, "so"),
        (stops(" far##", "##", at=6), "stop_sequence", "##", "so far"),
        (reaches("length", " on"), "max_tokens", None, "so on"),
        (reaches("context", " on"), "model_context_window_exceeded", None, "so on"),
    ],
)
async def test_every_end_has_its_stop_reason_and_the_sequence_that_matched(gateway, last, reason, sequence, text):
    async with gateway(lambda request: [says("so"), last]) as peers:
        whole = (await peers.messages(stop_sequences=[".", "##"])).json()
        *_, end, _ = streamed = events(await peers.messages(stop_sequences=[".", "##"], stream=True))
    assert list(peers.target.calls[0].request.stopping.strings) == [".", "##"]
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, sequence)
    assert end["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    pieces = [event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta"]
    assert "".join(pieces) == whole["content"][0]["text"] == text


async def test_a_stop_token_of_the_request_is_a_matched_sequence(gateway):
    (x,) = TOKENIZER.encode("x")
    finished = ends("box")
    finished.finish.stop_id = x
    finished = type(finished)(finished.ids[:-1], finish=finished.finish)
    async with gateway(lambda request: [finished]) as peers:
        answer = (await peers.messages(stop_token_ids=[x])).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "x")
    assert answer["content"][0]["text"] == "bo"


async def test_an_answer_of_nothing_is_one_empty_block(gateway):
    async with gateway(lambda request: [ends()]) as peers:
        assert (await peers.messages()).json()["content"] == [{"type": "text", "text": ""}]


PARTS = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]
SYSTEM = [
    {"system": "Be brief."},
    {"system": PARTS},
    {"messages": [{"role": "system", "content": PARTS}, *MESSAGES["messages"]]},
]


@pytest.mark.parametrize("fields", SYSTEM, ids=["a string", "blocks", "a message"])
async def test_equal_forms_of_a_system_turn_give_one_prompt(gateway, fields):
    async with gateway() as peers:
        assert (await peers.messages(**fields)).status_code == 200
    (call,) = peers.target.calls
    assert prompt_of(call) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_neighbours_of_one_role_are_one_turn(gateway):
    turns = [("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e")]
    messages = [{"role": role, "content": content} for role, content in turns]
    async with gateway() as peers:
        assert (await peers.messages(messages=messages)).status_code == 200
    assert prompt_of(peers.target.calls[0]) == (
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nc\nd<|im_end|>\n"
        "<|im_start|>user\ne<|im_end|>\n<|im_start|>assistant\n"
    )


BEGUN = ["Once <|im_end|> ", [{"type": "text", "text": "Once <|im_"}, {"type": "text", "text": "end|> "}]]


@pytest.mark.parametrize("content", BEGUN, ids=["a string", "parts"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_last_turn_of_the_assistant_is_the_beginning_of_the_answer(gateway, content, stream):
    messages = [*MESSAGES["messages"], {"role": "assistant", "content": content}]
    async with gateway(lambda request: [ends("upon")]) as peers:
        answer = await peers.messages(messages=messages, stream=stream)
        await peers.chat(messages=messages, continue_final_message=True)
    assert "upon" in answer.text
    assert "Once" not in answer.text
    ours, chats = (list(call.request.prompt_ids) for call in peers.target.calls)
    assert ours == chats
    assert prompt_of(peers.target.calls[0]).endswith("<|im_start|>assistant\nOnce <|im_end|> ")
    assert ours.count(2) == 1, "the end of the user's turn, and none that was typed"


FIELDS = {
    "max_tokens": 20,
    "temperature": 0.5,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": -3},
    "min_tokens": 4,
    "stop_token_ids": [5],
    "ignore_eos": True,
    "speculation": {"mode": "dflash", "max_draft_tokens": 4, "strict": True, "stats": True},
}


@pytest.mark.parametrize("name", FIELDS)
async def test_every_field_means_what_it_means_in_a_chat(gateway, name):
    fields = {"seed": 1, "max_tokens": 50, name: FIELDS[name]}
    async with gateway() as peers:
        assert (await peers.messages(**fields, stop_sequences=["a"])).status_code == 200
        assert (await peers.chat(**fields, stop=["a"])).status_code == 200
    ours, chats = (call.request for call in peers.target.calls)
    ours.request_id = chats.request_id = ""
    assert ours == chats


async def test_keys_versions_and_harmless_fields_are_let_be(gateway):
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01", "anthropic-beta": "a,b"}
    fields = {
        "metadata": {"user_id": "a"},
        "service_tier": "auto",
        "a_field_of_tomorrow": [1],
        "stop_sequences": [],
        **dict.fromkeys(("system", "stop_sequences", "temperature", "top_p", "top_k", "stream", "metadata")),
        **{name: neutral[0] for name, neutral in UNSUPPORTED.items() if neutral},
    }
    async with gateway() as peers:
        answer = await peers.http.post("/v1/messages?beta=true", json=MESSAGES | fields, headers=headers)
    assert answer.status_code == 200, answer.text


async def test_tokens_are_counted_as_the_answer_would_count_them(gateway):
    asked = {"model": "tiny", "system": "Be brief.", "messages": MESSAGES["messages"]}
    async with gateway() as peers:
        counted = await peers.anthropic.messages.count_tokens(**asked)
        answer = await peers.anthropic.messages.create(**asked, max_tokens=5)
        long = {"messages": [{"role": "user", "content": "x" * 600}]}
        many = await peers.http.post("/v1/messages/count_tokens", json=asked | long)
        refused = await peers.http.post("/v1/messages/count_tokens", json=asked | {"model": "other"})
    assert counted.input_tokens == answer.usage.input_tokens
    assert many.json()["input_tokens"] > 600
    assert (refused.status_code, refused.json()["error"]["type"]) == (404, "not_found_error")
    assert len(peers.target.calls) == 1


async def test_a_client_that_waits_for_a_whole_message_hears_no_pings(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.001)
    go_on = asyncio.Event()
    async with gateway(lambda request: [go_on, ends("late")], own=True) as peers:
        answer = asyncio.create_task(peers.messages())
        await peers.target.called(1)
        await peers.http.get("/live")
        go_on.set()
        assert (await answer).json()["content"][0]["text"] == "late"
