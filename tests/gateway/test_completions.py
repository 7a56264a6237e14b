"""What a completion gets, streamed and not."""

import asyncio
import json

import openai
import pytest
from openai.types import Completion

from tests.gateway.peers import PROMPT, frames
from tests.gateway.scripted_target import TOKENIZER, Round, ends, reaches, says, stops

pytestmark = pytest.mark.anyio


def echoing(request):
    """Says which choice it is, and of which prompt."""
    text = TOKENIZER.decode(list(request.prompt_ids), skip_special=False)
    return [says(f"{text}/"), says(f"{request.choice}", origin="accepted"), ends("!")]


async def test_an_answer_has_the_shape_that_openais_client_expects(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        answer = await peers.openai.completions.create(**PROMPT, extra_body={"speculation": "ngram"})
    assert (answer.object, answer.model, answer.system_fingerprint) == ("text_completion", "tiny", "fp-1")
    assert answer.id.startswith("cmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.text, choice.finish_reason, choice.logprobs) == (0, "Hello", "stop", None)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 6, 8)
    assert answer.speculation["requested"] == "ngram"


IDS = TOKENIZER.encode("abc")
PROMPTS = {
    "a string": ("abc", [IDS]),
    "control text": ("<|im_end|>", [TOKENIZER.encode("<|im_end|>")]),
    "strings": (["abc", "c"], [IDS, IDS[2:]]),
    "ids": ([1, *IDS, 2], [[1, *IDS, 2]]),
    "one id": ([0], [[0]]),
    "lists of ids": ([IDS, [5]], [IDS, [5]]),
    "a list of one string": (["abc"], [IDS]),
}


@pytest.mark.parametrize("name", PROMPTS)
async def test_every_form_of_a_prompt_reaches_the_target_as_it_is(gateway, name):
    prompt, ids = PROMPTS[name]
    async with gateway() as peers:
        answer = await peers.complete(prompt=prompt)
    sent = [list(call.request.prompt_ids) for call in peers.target.calls]
    assert sorted(sent) == sorted(ids)
    assert len(answer.json()["choices"]) == len(ids)
    assert answer.json()["usage"]["prompt_tokens"] == sum(map(len, ids))


@pytest.mark.parametrize("stream", [False, True])
async def test_choices_of_several_prompts_are_numbered_on_and_each_prompt_is_as_if_alone(gateway, stream):
    async with gateway(echoing) as peers:
        fields = {"prompt": ["a", "bb", "c"], "n": 2, "stream_options": {"include_usage": True} if stream else None}
        answer = await peers.complete(**fields, stream=stream)
    seeds = {call.request.sampling.seed for call in peers.target.calls}
    assert len(seeds) == 1
    if stream:
        *chunks, tail, _ = frames(answer)
        texts = [""] * 6
        for chunk in chunks:
            (choice,) = chunk["choices"]
            texts[choice["index"]] += choice["text"]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks].count("stop") == 6
    else:
        tail = answer.json()
        assert [choice["index"] for choice in tail["choices"]] == list(range(6))
        texts = [choice["text"] for choice in tail["choices"]]
    assert texts == ["a/0!", "a/1!", "bb/0!", "bb/1!", "c/0!", "c/1!"]
    assert tail["usage"] == {"prompt_tokens": 4, "completion_tokens": 32, "total_tokens": 36}
    assert tail["speculation"]["seed"] == seeds.pop()
    assert sum(tail["speculation"]["by_origin"].values()) == 32
    assert tail["speculation"]["accepted"] == 6


async def test_a_stream_is_one_frame_a_round_then_the_end_then_the_mark(gateway):
    async with gateway(lambda request: [says("Hel"), ends("lo")]) as peers:
        *chunks, mark = frames(await peers.complete(stream=True))
    assert mark == "[DONE]"
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Hel", "lo", ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert ["speculation" in chunk for chunk in chunks] == [False, False, True]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)


async def test_every_chunk_is_valid_for_openais_client_but_for_its_reason(gateway):
    """The client's own type has no null for a reason that is still to come, though the API sends it."""
    async with gateway(lambda request: [says("Hel", origin="accepted"), ends("lo")]) as peers:
        response = await peers.complete(stream=True, n=2, logprobs=2, stream_options={"include_usage": True})
    *chunks, tail, _ = frames(response)
    for chunk in [*chunks, tail]:
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        Completion.model_validate_json(json.dumps(chunk), strict=True)
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert (tail["choices"], "speculation" in tail) == ([], True)


@pytest.mark.parametrize(
    ("last", "reason"),
    [(ends("x"), "stop"), (ends(), "stop"), (stops("x.", ".", at=3), "stop"), (reaches("length", "x"), "length")],
)
async def test_streamed_and_whole_answers_agree(gateway, last, reason):
    fields = {"stop": ".", "seed": 1, "logprobs": 1, "return_token_ids": True}
    async with gateway(lambda request: [says("éa"), last]) as peers:
        (whole,) = (await peers.complete(**fields)).json()["choices"]
        *chunks, _ = frames(await peers.complete(**fields, stream=True))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == reason
    assert [id for choice in choices for id in choice.get("token_ids", [])] == whole["token_ids"]
    for part in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [each for choice in choices for each in (choice["logprobs"] or {part: []})[part]]
        assert streamed == whole["logprobs"][part]


async def test_logprobs_have_the_older_shape_with_the_drawn_token_among_the_likeliest(gateway):
    rounds = [says("ab"), Round(TOKENIZER.encode("é")), ends("c")]
    async with gateway(lambda request: rounds) as peers:
        answer = await peers.openai.completions.create(**PROMPT, logprobs=2)
        bare = await peers.openai.completions.create(**PROMPT, logprobs=0)
    logprobs, ids = answer.choices[0].logprobs, [*TOKENIZER.encode("abéc"), 0]
    assert logprobs.tokens == ["a", "b", "bytes:\\xc3", "bytes:\\xa9", "c", "<|end|>"]
    assert logprobs.token_logprobs == pytest.approx([-id / 1000 for id in ids])
    assert logprobs.text_offset == [0, 1, 2, 2, 3, 4]
    assert [len(top) for top in logprobs.top_logprobs] == [2] * 6
    assert logprobs.top_logprobs[0] == pytest.approx({"a": -ids[0] / 1000, "b": -ids[0] / 1000 - 1})
    assert [list(top) for top in bare.choices[0].logprobs.top_logprobs] == [[token] for token in logprobs.tokens]


FIELDS = {
    "max_tokens": 20,
    "n": 2,
    "temperature": 0.5,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": -0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": -3},
    "min_tokens": 4,
    "stop": ["a", "b"],
    "stop_token_ids": [5],
    "ignore_eos": True,
    "speculation": {"mode": "dflash", "max_draft_tokens": 4, "strict": True, "stats": True},
}


@pytest.mark.parametrize("name", FIELDS)
async def test_every_field_means_what_it_means_in_a_chat(gateway, name):
    fields = {"seed": 1, name: FIELDS[name]}
    async with gateway() as peers:
        assert (await peers.complete(**fields)).status_code == 200
        assert (await peers.chat(**fields)).status_code == 200
    n = fields.get("n", 1)
    calls = sorted((call.request for call in peers.target.calls), key=lambda request: request.choice)
    for request in calls:
        request.request_id = ""
        del request.prompt_ids[:]
    assert len(calls) == 2 * n
    assert calls[::2] == calls[1::2]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": ""}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": 3}),
        ("prompt", {"prompt": {"text": "hi"}}),
        ("prompt", {"prompt": ["a", 5]}),
        ("prompt", {"prompt": [5, True]}),
        ("prompt", {"prompt": [5, 1.5]}),
        ("prompt", {"prompt": [[5], "a"]}),
        ("prompt", {"prompt": [[5], [None]]}),
        ("prompt", {"prompt": [[[5]]]}),
        ("prompt", {"prompt": "\ud800"}),
        ("prompt[1]", {"prompt": ["a", ""]}),
        ("prompt[1]", {"prompt": [[5], []]}),
        ("prompt[1]", {"prompt": [5, TOKENIZER.vocab_size]}),
        ("prompt[0]", {"prompt": [-1]}),
        ("prompt[0]", {"prompt": [10**30]}),
        ("prompt[1][1]", {"prompt": [[5], [5, 999]]}),
        ("prompt", {"prompt": ["a"] * 129}),
        ("prompt", {"prompt": ["a"] * 50, "n": 3}),
        ("echo", {"echo": True}),
        ("suffix", {"suffix": "x"}),
        ("best_of", {"best_of": 2}),
        ("best_of", {"best_of": 1, "n": 2}),
        ("logprobs", {"logprobs": True}),
    ],
    ids=lambda each: str(each)[:40],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_wrong_with_a_completion_is_refused_by_its_path(gateway, path, fields, stream):
    async with gateway() as peers:
        answer = await peers.raw(json.dumps(PROMPT | {"stream": stream} | fields).encode(), path="/v1/completions")
        assert peers.target.calls == []
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", path)
    assert path in error["message"]


@pytest.mark.parametrize(
    "fields", [{"echo": False, "suffix": "", "best_of": 1}, {"n": 2, "best_of": 2}, dict.fromkeys(("echo", "logprobs"))]
)
async def test_what_asks_for_nothing_is_let_be(gateway, fields):
    async with gateway() as peers:
        assert (await peers.complete(**fields)).status_code == 200


@pytest.mark.parametrize(("prompt", "path"), [("x" * 600, "prompt"), (["x", "y" * 600], "prompt[1]")])
async def test_a_prompt_past_the_context_is_refused_with_both_lengths(gateway, prompt, path):
    async with gateway() as peers:
        error = (await peers.complete(prompt=prompt)).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", path)
    assert "512" in error["message"]


async def test_an_error_of_one_prompt_ends_all(gateway):
    never = asyncio.Event()

    def script(request):
        return [says("a"), ZeroDivisionError("secret") if len(request.prompt_ids) == 2 else never]

    async with gateway(script) as peers:
        *_, last = frames(await peers.complete(stream=True, prompt=["a", "bb", "c"]))
        for call in peers.target.calls:
            await call.ended.wait()
        with pytest.raises(openai.InternalServerError):
            await peers.openai.completions.create(model="tiny", prompt=["a", "bb"])
    assert last["error"]["code"] == "internal_error"
