"""What Anthropic's clients get."""

import asyncio
import json

import anthropic
import pytest

from services.errors import InvalidRequest, Overloaded, Unavailable
from services.gateway.anthropic.request import UNSUPPORTED
from tests.gateway.faults import path_of
from tests.gateway.peers import MESSAGES, events
from tests.gateway.scripted_target import TOKENIZER, ends, reaches, says, stops

pytestmark = pytest.mark.anyio

ORDER = ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]


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


async def test_a_stream_is_one_message_with_one_block_in_the_order_of_the_api(gateway):
    async with gateway(lambda request: [says("Hel", origin="accepted"), says("lo"), ends()]) as peers:
        answer = await peers.messages(stream=True, seed=5)
        whole = (await peers.messages(seed=5)).json()
    assert answer.headers["content-type"].startswith("text/event-stream")
    start, opened, *deltas, closed, end, stop = events(answer)
    assert [event["type"] for event in (start, opened, closed, end, stop)] == ORDER
    assert start["message"] == {
        "id": start["message"]["id"],
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": whole["usage"] | {"output_tokens": 0},
    }
    assert opened == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    assert deltas == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in ("Hel", "lo")
    ]
    assert closed == {"type": "content_block_stop", "index": 0}
    assert end == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": whole["usage"],
        "speculation": whole["speculation"],
    }
    assert stop == {"type": "message_stop"}


async def test_anthropics_client_builds_the_same_message_from_a_stream(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        whole = await peers.anthropic.messages.create(**MESSAGES)
        async with peers.anthropic.messages.stream(**MESSAGES) as stream:
            texts = [text async for text in stream.text_stream]
            built = await stream.get_final_message()
    assert texts == ["Hel", "lo"]
    assert built.model_dump(include={"content", "usage", "stop_reason"}) == whole.model_dump(
        include={"content", "usage", "stop_reason"}
    )


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
        assert [event["type"] for event in events(await peers.messages(stream=True))] == ORDER


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


async def test_a_client_that_waits_long_hears_pings_after_the_start(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    go_on = asyncio.Event()
    async with (
        gateway(lambda request: [go_on, ends("late")], own=True) as peers,
        peers.http.stream("POST", "/v1/messages", json=MESSAGES | {"stream": True}) as response,
    ):
        types = []
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                types.append(json.loads(line.removeprefix("data: "))["type"])
                if types.count("ping") == 2:
                    go_on.set()
    assert types[:2] == ORDER[:2]
    assert [type for type in types if type != "ping"] == [*ORDER[:2], "content_block_delta", *ORDER[2:]]


async def test_a_stream_that_never_gets_as_far_as_a_prompt_is_pings_and_an_error(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.01)
    monkeypatch.setattr("services.gateway.targets.CONNECT_S", 0.2)
    async with gateway(loading=True) as peers:
        await peers.stop_target()
        answer = await peers.messages(stream=True)
    *pings, last = events(answer)
    assert {event["type"] for event in pings} == {"ping"}
    assert last["error"]["type"] == "overloaded_error"


async def test_a_client_that_waits_for_a_whole_message_hears_no_pings(gateway, monkeypatch):
    monkeypatch.setattr("services.gateway.process.PING_S", 0.001)
    go_on = asyncio.Event()
    async with gateway(lambda request: [go_on, ends("late")], own=True) as peers:
        answer = asyncio.create_task(peers.messages())
        await peers.target.called(1)
        await peers.http.get("/live")
        go_on.set()
        assert (await answer).json()["content"][0]["text"] == "late"


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
        ("speculation.bands", {"speculation": {"bands": [{}]}}),
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


async def test_an_error_in_a_stream_is_its_last_event(gateway):
    async with gateway(lambda request: [says("a"), ZeroDivisionError("secret")]) as peers:
        answer = await peers.messages(stream=True)
        with pytest.raises(anthropic.APIStatusError):
            async with peers.anthropic.messages.stream(**MESSAGES) as stream:
                await stream.get_final_message()
    assert answer.status_code == 200
    *before, last = events(answer)
    assert [event["type"] for event in before] == [*ORDER[:2], "content_block_delta"]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "internal error"},
        "request_id": answer.headers["request-id"],
    }


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
