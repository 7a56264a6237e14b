"""What may be wrong within a field of a chat, or between its fields, and all of it over gRPC."""

import json
import math

import grpc
import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import types_pb2 as types

from services.errors import ContextTooLong, InvalidRequest, TandemError
from services.wire.status import raising
from tests.gateway.peers import BODY
from tests.gateway.scripted_target import TOKENIZER, byte_files, ends

pytestmark = pytest.mark.anyio

NESTED = [
    ("stop[1]", {"stop": ["a", ""]}),
    ("stop[0]", {"stop": [""]}),
    ("stop[1]", {"stop": ["a", 3]}),
    ("stop[0]", {"stop": [None]}),
    ("stop_token_ids[1]", {"stop_token_ids": [5, TOKENIZER.vocab_size]}),
    ("stop_token_ids[0]", {"stop_token_ids": [-1]}),
    ("stop_token_ids[0]", {"stop_token_ids": ["5"]}),
    ("logit_bias.word", {"logit_bias": {"word": 1}}),
    ("logit_bias.-1", {"logit_bias": {"-1": 1}}),
    ("logit_bias.01", {"logit_bias": {"01": 1}}),
    ("logit_bias.٣", {"logit_bias": {"٣": 1}}),
    ("logit_bias.5", {"logit_bias": {"5": "1"}}),
    ("logit_bias.5", {"logit_bias": {"5": True}}),
    ("logit_bias.5", {"logit_bias": {"5": None}}),
    ("top_logprobs", {"top_logprobs": 3}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": -1}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 1.5}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": True}),
    ("top_logprobs", {"logprobs": False, "top_logprobs": 1}),
    ("continue_final_message", {"continue_final_message": True}),
    ("continue_final_message", {"continue_final_message": "yes"}),
    (
        "add_generation_prompt",
        {
            "continue_final_message": True,
            "add_generation_prompt": True,
            "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        },
    ),
    ("min_tokens", {"min_tokens": 9, "max_tokens": 8}),
    ("max_completion_tokens", {"max_tokens": 5, "max_completion_tokens": 0}),
    ("stream_options", {"stream_options": {}}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": 1}}),
    ("speculation.mode", {"speculation": {"mode": "fast"}}),
    ("speculation.mode", {"speculation": {"mode": ""}}),
    ("speculation.mode", {"speculation": {"mode": 3}}),
    *(
        ("speculation.max_draft_tokens", {"speculation": {"max_draft_tokens": value}})
        for value in (0, 16, -1, 1.5, "3")
    ),
    ("speculation.strict", {"speculation": {"strict": 1}}),
    ("speculation.stats", {"speculation": {"stats": "yes"}}),
    ("speculation.bands", {"speculation": {"bands": 3}}),
    ("speculation.bands[0].modes", {"speculation": {"bands": [{"to": 5}]}}),
    ("speculation.bands[0].from", {"speculation": {"bands": [{"from": "0", "modes": ["mtp"]}]}}),
    ("speculation.bands[1]", {"speculation": {"bands": [{"modes": ["mtp"]}, {"from": -1, "modes": ["mtp"]}]}}),
    ("speculation.bands[0]", {"speculation": {"bands": [{"to": 2**32, "modes": ["mtp"]}]}}),
    ("speculation.bands[0]", {"speculation": {"bands": [{"modes": ["fast"]}]}}),
    ("speculation.explain", {"speculation": {"explain": 1}}),
    ("speculation.max_draft_token", {"speculation": {"max_draft_token": 3}}),
    ("messages[0]", {"messages": ["hi"]}),
    ("messages[0].role", {"messages": [{"content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": None, "content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": "robot", "content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": "tool", "content": "hi"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": None}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": 3}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": []}]}),
    ("messages[0].content", {"messages": [{"role": "user", "content": "\ud800"}]}),
    ("messages[1].content", {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]}),
    ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"text": "a"}]}]}),
]


async def refused(peers, body: dict, field: str, *, status: int = 400) -> dict:
    """Send it, and hold the answer to the shape of an error that names the field."""
    answer = await peers.raw(json.dumps(body).encode())
    assert answer.headers["content-type"] == "application/json"
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert field in error["message"]
    assert len(error["message"]) < 500
    return error


@pytest.fixture
async def peers(gateway):
    """The target must hear of nothing, and the gateway be as good as before."""
    async with gateway() as peers:
        yield peers
        assert peers.target.calls == []
        assert (await peers.chat()).status_code == 200


async def test_a_bad_value_further_in_is_refused_by_its_path(peers):
    for path, fields in NESTED:
        await refused(peers, BODY | fields, path)


async def test_an_unknown_mode_is_answered_with_the_six(peers):
    error = await refused(peers, BODY | {"speculation": "fast"}, "speculation")
    assert all(mode in error["message"] for mode in ("auto", "none", "ngram", "mtp", "dflash", "dflash2"))


async def test_an_unknown_model_is_404_and_names_the_known(peers):
    error = await refused(peers, BODY | {"model": "other"}, "model", status=404)
    assert error["code"] == "model_not_found"
    assert "tiny" in error["message"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("add_generation_prompt", {"add_generation_prompt": False}),
        ("messages[0].tool_calls", {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}]}),
        (
            "messages[0].content[1].type",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
        ),
    ],
    ids=str,
)
async def test_what_is_not_there_further_in_is_refused_by_its_path(peers, path, fields):
    assert (await refused(peers, BODY | fields, path))["code"] == "unsupported_parameter"


HARMLESS = [
    {"speculation": {"mode": None, "max_draft_tokens": None, "audit": False, "bands": []}},
    {"speculation": {}},
    {"stop": []},
    {"stop": [" ", "\n"]},
    {"stop": ["x" * 256] * 16},
    {"logit_bias": {"0": -100, "5": 100, str(TOKENIZER.vocab_size - 1): 0.5}},
    {"messages": [{"role": "assistant", "content": "", "tool_calls": [], "name": "a"}]},
    {"top_p": 1e-9},
    {"top_k": TOKENIZER.vocab_size},
    {"n": 128, "max_tokens": 1},
    {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 1, "repetition_penalty": 2},
    {"max_tokens": 0, "max_completion_tokens": 5},
]


@pytest.mark.parametrize("fields", HARMLESS, ids=lambda fields: ",".join(fields)[:30])
async def test_what_looks_odd_and_is_legal_is_let_be(gateway, fields):
    async with gateway() as peers:
        answer = await peers.chat(**fields)
    assert answer.status_code == 200, answer.text


async def test_a_model_without_a_chat_template_says_so_and_still_completes_text(gateway, caplog):
    async with gateway(lambda request: [ends("ok")], files=byte_files(template=None)) as peers:
        assert "tiny has no chat template; chats will be refused" in caplog.messages
        answer = await peers.chat()
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
        assert "no chat template" in answer.json()["error"]["message"]
        texts = [message.text async for message in peers.stub.Generate(pb.GenerateRequest(text="hi"))]
    assert "".join(texts) == "ok"


async def test_a_chat_of_which_the_template_makes_nothing_is_refused_on_every_face(gateway):
    empty = [{"role": "user", "content": ""}]
    async with gateway(files=byte_files(template="{{ messages[0].content }}")) as peers:
        for answer in (await peers.chat(messages=empty), await peers.messages(messages=empty)):
            assert answer.status_code == 400
            assert "messages must give a prompt of at least one token" in answer.json()["error"]["message"]
        error = await error_of(peers, asked({"chat": pb.Chat(messages=[pb.ChatMessage(role="user")])}))
        assert (type(error), error.field) == (InvalidRequest, "chat.messages")
        assert peers.target.calls == []
        assert (await peers.chat()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_template_that_refuses_is_the_clients_error(gateway, stream):
    template = "{% if messages[0].role != 'system' %}{{ raise_exception('begin with a system turn') }}{% endif %}x"
    async with gateway(files=byte_files(template=template)) as peers:
        answer = await peers.chat(stream=stream)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert "begin with a system turn" in answer.json()["error"]["message"]


SAMPLING = {
    "temperature": [-0.1, 2.1, math.nan, math.inf, -math.inf],
    "top_p": [0, -0.1, 1.0001, math.nan, math.inf],
    "top_k": [TOKENIZER.vocab_size + 1],
    "min_p": [-0.1, 1.1, math.nan],
    "repetition_penalty": [0, 2.1, math.nan],
    "presence_penalty": [-2.1, 2.1, math.nan],
    "frequency_penalty": [-2.1, 2.1, math.nan],
    "min_tokens": [513],
}
GRPC = [
    *(
        (f"sampling.{field}", {"sampling": types.Sampling(**{field: value})})
        for field, values in SAMPLING.items()
        for value in values
    ),
    ("sampling.logit_bias", {"sampling": types.Sampling(logit_bias=[types.LogitBias(id=999, bias=1)])}),
    ("sampling.logit_bias", {"sampling": types.Sampling(logit_bias=[types.LogitBias(id=5, bias=math.nan)])}),
    ("sampling.banned_ids[0]", {"sampling": types.Sampling(banned_ids=[999])}),
    ("sampling.banned_ids", {"sampling": types.Sampling(banned_ids=range(TOKENIZER.vocab_size))}),
    ("stopping.strings[0]", {"stopping": types.Stopping(strings=[""])}),
    ("stopping.strings", {"stopping": types.Stopping(strings=["a"] * 17)}),
    ("stopping.ids[0]", {"stopping": types.Stopping(ids=[999])}),
    ("stopping.ids", {"stopping": types.Stopping(ids=[5] * (TOKENIZER.vocab_size + 1))}),
    ("request_id", {"request_id": "x" * 201}),
    ("speculation.mode", {"speculation": types.Speculation(mode=99)}),
    ("speculation.max_draft_tokens", {"speculation": types.Speculation(max_draft_tokens=0)}),
    ("speculation.max_draft_tokens", {"speculation": types.Speculation(max_draft_tokens=16)}),
    ("max_tokens", {"max_tokens": 0}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("logprobs", {"logprobs": 21}),
    ("input", {"text": None}),
    ("text", {"text": ""}),
    ("token_ids.ids", {"token_ids": pb.TokenIds()}),
    ("token_ids.ids[1]", {"token_ids": pb.TokenIds(ids=[5, 999])}),
    ("chat.messages", {"chat": pb.Chat()}),
    ("chat.messages[0].role", {"chat": pb.Chat(messages=[pb.ChatMessage(role="robot", content="a")])}),
]


def asked(fields: dict) -> pb.GenerateRequest:
    inputs = {"text", "token_ids", "chat"} & fields.keys()
    return pb.GenerateRequest(**({} if inputs else {"text": "hi"}) | fields)


async def error_of(peers, request) -> TandemError:
    with pytest.raises(TandemError) as caught, raising():
        await peers.stub.Generate(request).read()
    return caught.value


async def test_the_grpc_face_refuses_the_same_by_its_own_names(peers):
    for field, fields in GRPC:
        error = await error_of(peers, asked(fields))
        assert (type(error), error.field) == (InvalidRequest, field)
        assert field in str(error)


async def test_an_unknown_mode_in_a_band_is_refused_over_grpc_too(peers):
    bands = [types.SpeculationBand(modes=[3]), types.SpeculationBand(modes=[99])]
    error = await error_of(peers, asked({"speculation": types.Speculation(bands=bands)}))
    assert (type(error), error.field) == (InvalidRequest, "speculation.bands[1]")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("text", {"text": "x" * 512}),
        # gRPC's own limit would lie between the first two
        *(("token_ids.ids", {"token_ids": pb.TokenIds(ids=[5] * size)}) for size in (4_194_250, 4_194_305, 9_000_000)),
        ("max_tokens", {"max_tokens": 511}),
        ("max_tokens", {"max_tokens": 2**32 - 1}),
    ],
)
async def test_the_grpc_face_refuses_what_does_not_fit_the_context(peers, field, fields):
    error = await error_of(peers, asked(fields))
    assert (type(error), error.field) == (ContextTooLong, field)
    assert "512" in str(error)


async def test_an_unknown_model_is_not_found_over_grpc(peers):
    call = peers.stub.Generate(asked({"model": "other"}))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
