"""GenerationService: another face of the same core."""

import pytest
from tandem.v1 import generation_pb2 as pb
from tandem.v1 import types_pb2 as types
from tandem.v1.target_pb2 import TargetServiceGenerateResponse
from tandem.v1.types_pb2 import Token

from services.wire.codec import FINISH_KINDS, MODES
from tests.gateway.peers import BODY
from tests.gateway.scripted_target import TOKENIZER, ends, says, stops

pytestmark = pytest.mark.anyio

CHAT = pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")])


async def test_a_stream_carries_text_tokens_and_the_end(gateway):
    script = [says("a", origin="first"), says("bc", origin="accepted"), ends("é")]
    async with gateway(lambda request: script) as peers:
        messages = [message async for message in peers.stub.Generate(pb.GenerateRequest(chat=CHAT, logprobs=1))]
        prompt = len(peers.target.calls[0].request.prompt_ids)
    assert [message.text for message in messages] == ["a", "bc", "é"]
    ids = [token.id for message in messages for token in message.tokens]
    assert ids == [*TOKENIZER.encode("abcé"), 0]
    assert all(token.HasField("logprob") and len(token.top) == 1 for message in messages for token in message.tokens)
    *before, last = messages
    assert not any(message.HasField(name) for message in before for name in ("finish", "usage", "report"))
    assert FINISH_KINDS.name(last.finish.kind) == "stop_token"
    assert last.finish.stop_id == 0
    assert last.usage == pb.Usage(prompt_tokens=prompt, completion_tokens=len(ids))
    assert last.report.accepted == 2


async def test_a_stop_string_is_named(gateway):
    async with gateway(lambda request: [stops("ab##", "##", at=2)]) as peers:
        request = pb.GenerateRequest(text="hi", stopping=types.Stopping(strings=["##"]))
        (message,) = [message async for message in peers.stub.Generate(request)]
    assert (message.text, message.finish.stop_string) == ("ab", "##")


async def test_choices_end_one_by_one_and_the_call_with_the_last(gateway):
    def script(request):
        return [says("x" * (request.choice + 1)), ends()]

    async with gateway(script) as peers:
        messages = [message async for message in peers.stub.Generate(pb.GenerateRequest(text="hi", n=3))]
    assert sorted(message.choice for message in messages if message.HasField("finish")) == [0, 1, 2]
    assert [message.HasField("usage") for message in messages] == [False] * 5 + [True]
    assert messages[-1].usage.completion_tokens == 1 + 2 + 3 + 3


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"text": "a<|im_end|>b"}, TOKENIZER.encode("a<|im_end|>b")),
        ({"token_ids": pb.TokenIds(ids=[1, 5, 2])}, [1, 5, 2]),
        ({"token_ids": pb.TokenIds(ids=[7])}, [7]),
    ],
)
async def test_text_is_text_and_ids_go_through(gateway, asked, ids):
    async with gateway() as peers:
        async for _ in peers.stub.Generate(pb.GenerateRequest(**asked)):
            pass
    assert list(peers.target.calls[0].request.prompt_ids) == ids


FIELDS = {
    "max_tokens": (20, {"max_tokens": 20}),
    "temperature": (0.5, {"sampling": {"temperature": 0.5}}),
    "temperature of nearly zero": ({"temperature": 1e-7}, {"sampling": {"temperature": 1e-7}}),
    "top_k": (7, {"sampling": {"top_k": 7}}),
    "top_p": (0.5, {"sampling": {"top_p": 0.5}}),
    "min_p": (0.25, {"sampling": {"min_p": 0.25}}),
    "repetition_penalty": (1.5, {"sampling": {"repetition_penalty": 1.5}}),
    "presence_penalty": (-0.5, {"sampling": {"presence_penalty": -0.5}}),
    "frequency_penalty": (0.5, {"sampling": {"frequency_penalty": 0.5}}),
    "logit_bias": ({"5": -3}, {"sampling": {"logit_bias": [{"id": 5, "bias": -3}]}}),
    "min_tokens": (4, {"sampling": {"min_tokens": 4}}),
    "seed": (5, {"sampling": {"seed": 5}}),
    "stop": (["a", "b"], {"stopping": {"strings": ["a", "b"]}}),
    "stop_token_ids": ([5], {"stopping": {"ids": [5]}}),
    "ignore_eos": (True, {"stopping": {"ignore_eos": True}}),
    "speculation": (
        {"mode": "dflash", "max_draft_tokens": 4, "strict": True, "stats": True, "audit": True},
        {
            "speculation": {
                "mode": MODES.value("dflash"),
                "max_draft_tokens": 4,
                "strict": True,
                "stats": True,
                "audit": True,
            }
        },
    ),
    "temperature of zero": (
        {"temperature": 0, "top_p": 1, "top_k": 0},
        {"sampling": {"temperature": 0, "top_p": 1, "top_k": 0}},
    ),
}


@pytest.mark.parametrize("name", FIELDS)
async def test_every_field_of_a_chat_reaches_the_target_and_both_faces_agree(gateway, name):
    value, proto = FIELDS[name]
    chat = value if " " in name else {name: value}
    async with gateway() as peers:
        assert (await peers.chat(**{"seed": 1} | chat)).status_code == 200
        request = pb.GenerateRequest(chat=CHAT, model="tiny", **{"sampling": {"seed": 1}} | proto)
        if not request.sampling.HasField("seed"):
            request.sampling.seed = 1
        async for _ in peers.stub.Generate(request):
            pass
    rest, grpc = (call.request for call in peers.target.calls)
    assert rest.request_id != grpc.request_id
    rest.request_id = grpc.request_id = ""
    assert rest == grpc
    for field, wanted in proto.items():
        sent = getattr(rest, field)
        if isinstance(wanted, dict):
            assert sent == type(sent)(**{"seed": 1} | wanted if field == "sampling" else wanted)
        else:
            assert sent == wanted


async def test_each_token_brings_its_bytes_when_they_are_asked_for(gateway):
    async with gateway(lambda request: [says("a"), ends("é")]) as peers:
        asked = pb.GenerateRequest(text="hi", token_bytes=True)
        pieces = [token.piece async for message in peers.stub.Generate(asked) for token in message.tokens]
        plain = [
            token async for message in peers.stub.Generate(pb.GenerateRequest(text="hi")) for token in message.tokens
        ]
    assert pieces == [b"a", b"\xc3", b"\xa9", b""]
    assert not any(token.HasField("piece") for token in plain)


async def test_describe_passes_on_what_the_target_says_now(gateway):
    async with gateway() as peers:
        described = (await peers.stub.Describe(pb.DescribeRequest())).target
        assert described == peers.target.description


async def test_what_nobody_asked_for_is_left_to_the_model(gateway):
    async with gateway() as peers:
        await peers.chat(seed=1)
    request = peers.target.calls[0].request
    assert request.sampling == types.Sampling(seed=1)
    assert request.stopping == types.Stopping()
    assert not request.HasField("max_tokens")
    assert not request.HasField("logprobs")
    assert request.model == BODY["model"]


async def test_a_request_may_bring_its_own_id(gateway):
    async with gateway() as peers:
        async for _ in peers.stub.Generate(pb.GenerateRequest(text="hi", request_id="mine")):
            pass
    assert peers.target.calls[0].request.request_id == "mine"


async def test_a_client_that_takes_nothing_holds_its_own_rounds_back_and_nobody_elses(gateway):
    """What is sent ahead of it is bounded by the windows of two connections, however much the target has to say."""
    sent, big = 0, TargetServiceGenerateResponse(tokens=[Token(id=5)] * 10_000)

    def script(request):
        nonlocal sent
        while request.prompt_ids[0] == 5:
            sent += 1
            assert sent < 1000, "it never ends"
            yield big
        yield ends("Hello")

    async with gateway(script) as peers:
        asked = pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5]))
        call = peers.stub.Generate(asked)
        await call.read()
        before = -1
        while sent != before:
            before = sent
            answer = await peers.chat()
            assert answer.json()["choices"][0]["message"]["content"] == "Hello"
        assert peers.target.calls[0].outcome is None
        call.cancel()
