"""Every field of every POST route, and what may be wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.gateway.anthropic import request as messages_request
from services.gateway.openai import chat_request, completion_request
from tests.gateway.peers import BODY, MESSAGES, PROMPT
from tests.gateway.scripted_target import TOKENIZER

VOCABULARY = TOKENIZER.vocab_size
HALF = "\ud800"
"""Half of a surrogate pair: JSON can write it, UTF-8 cannot."""

TYPES = {
    "number": ("0.7", True, [], {}),
    "integer": ("7", True, 1.5, [], {}),
    "switch": ("true", 1, 0, [], {}),
    "text": (3, True, [], {}, HALF),
    "object": (3, "x", True, []),
    "list": (3, "x", True, {}, [3], [None]),
    "list or text": (3, True, {}, [3], [None], HALF, [HALF]),
    "ids": (3, "x", True, {}, ["5"], [True], [1.5], [None]),
    "bias": (3, "x", True, [], {"5": "1"}, {"5": True}, {"5": None}, {"word": 1}, {"-1": 1}, {"01": 1}, {"٣": 1}),
    "speculation": (3, True, [], ["ngram"], {"mode": 3}, {"strict": 1}, {"stats": "yes"}, {"bands": 3}, HALF),
    "turns": (3, "hi", {}, ["hi"], [{"role": "user"}], [{"content": "hi"}], [{"role": "user", "content": 3}]),
    "turn": (3, True, {}, [3], [{"text": "a"}], [{"type": "text", "text": 3}], HALF),
    "prompt": (3, True, {}, ["a", 5], [5, True], [5, 1.5], [[5], "a"], [[5], [None]], [[[5]]], HALF, [HALF]),
}
HUGE = {
    "number": (1e308, -1e308, 10**30),
    "integer": (1e308, 10**30, -(10**30)),
    "text": ("x" * 5000,),
    "list": (["x"] * 5000, ["x" * 5000]),
    "list or text": (["x"] * 5000, ["x" * 5000], "x" * 5000),
    "ids": ([5] * 5000, [10**30]),
    "bias": ({str(id): 1 for id in range(5000)}, {"5": 1e308}, {"9" * 19: 1}),
    "speculation": ({"max_draft_tokens": 10**30}, "x" * 5000),
    "turns": ([{"role": "user", "content": "x" * 5000}],),
    "turn": ("x" * 5000,),
    "prompt": ("x" * 5000, ["x"] * 5000, [5] * 5000, [10**30]),
}
NOT_FINITE = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")
PLACES = {
    "number": "%s",
    "integer": "%s",
    "bias": '{"5": %s}',
    "ids": "[%s]",
    "prompt": "[%s]",
    "speculation": '{"max_draft_tokens": %s}',
}
"""Where in a field of some kind a number can stand."""


@dataclass(frozen=True, slots=True)
class Field:
    """`beyond`: values of the right type that are out of range. What is not `bounded` may be as long as it likes, or is
    refused by another name."""

    kind: str
    beyond: Sequence[object] = ()
    required: bool = False
    nullable: bool = True
    bounded: bool = True

    def faults(self) -> Mapping[str, Sequence[object]]:
        huge = HUGE.get(self.kind, ()) if self.bounded else ()
        null = () if self.nullable and not self.required else (None,)
        return {"null": null, "type": TYPES[self.kind], "range": self.beyond, "huge": huge}


def required(kind: str, *beyond: object) -> Field:
    return Field(kind, beyond, required=True)


COMMON = {
    "model": required("text"),
    "stream": Field("switch"),
    "temperature": Field("number", (-0.1, 2.1)),
    "top_p": Field("number", (0, -0.1, 1.0001)),
    "top_k": Field("integer", (-1, VOCABULARY + 1)),
    "min_p": Field("number", (-0.1, 1.1)),
    "repetition_penalty": Field("number", (0, -1, 2.1)),
    "presence_penalty": Field("number", (-2.1, 2.1)),
    "frequency_penalty": Field("number", (-2.1, 2.1)),
    "min_tokens": Field("integer", (-1, 513)),
    "logit_bias": Field("bias", ({str(VOCABULARY): 1}, {"5": 101}, {"5": -100.5})),
    "seed": Field("integer", (2**63, -(2**63) - 1)),
    "stop_token_ids": Field("ids", ([-1], [VOCABULARY], [5, VOCABULARY])),
    "ignore_eos": Field("switch"),
    "speculation": Field(
        "speculation",
        ("", "fast", "DFLASH", *({"max_draft_tokens": value} for value in (0, 16, -1)), {"mode": "fast"}, {"new": 1}),
        nullable=False,
    ),
}
OPENAI = COMMON | {
    "max_tokens": Field("integer", (0, -1)),
    "n": Field("integer", (0, -1, 129)),
    "stop": Field("list or text", ("", [""], ["a", ""], ["x"] * 17, "x" * 257)),
    "stream_options": Field("object"),
    "user": Field("text", bounded=False),
    "return_token_ids": Field("switch"),
}
EMPTY_TURNS = ([], [{"role": "user", "content": []}], [{"role": "robot", "content": "a"}])

ROUTES: Mapping[str, tuple[Mapping[str, object], Mapping[str, Field]]] = {
    "/v1/chat/completions": (
        BODY,
        OPENAI
        | {
            "messages": required("turns", *EMPTY_TURNS),
            "max_completion_tokens": Field("integer", (0, -1)),
            "logprobs": Field("switch"),
            "top_logprobs": Field("integer", (0, -1, 21)),  # alone it is out of place
            "continue_final_message": Field("switch", (True,)),  # there is none to go on with
            "add_generation_prompt": Field("switch", (False,)),
        },
    ),
    "/v1/completions": (
        PROMPT,
        OPENAI
        | {
            "prompt": required("prompt", "", [], [""], [[]], ["a", ""], [-1], [VOCABULARY], [[5], [5, VOCABULARY]]),
            "logprobs": Field("integer", (-1, 21)),
        },
    ),
    "/v1/messages": (
        MESSAGES,
        COMMON
        | {
            "messages": required("turns", *EMPTY_TURNS, [{"role": "assistant", "content": "a"}]),
            "max_tokens": required("integer", 0, -1),
            "system": Field("turn", ([],), bounded=False),
            "stop_sequences": Field("list", ([""], ["a", ""], ["x"] * 17, ["x" * 257])),
            "metadata": Field("object"),
        },
    ),
}
UNSUPPORTED = {
    "/v1/chat/completions": chat_request.UNSUPPORTED,
    "/v1/completions": completion_request.UNSUPPORTED,
    "/v1/messages": messages_request.UNSUPPORTED,
}


def path_of(answer, *, status: int = 400) -> str | None:
    """Hold an answer to the shape of a refusal, and give the field it names; Anthropic's shape has no place for one."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body, openai = answer.json(), "/v1/messages" not in str(answer.request.url)
    error = body["error"]
    assert set(body) == ({"error"} if openai else {"type", "error", "request_id"})
    assert set(error) == ({"message", "type", "param", "code"} if openai else {"message", "type"})
    assert error["type"] in ("invalid_request_error", "not_found_error")
    assert len(error["message"]) < 500
    field = error["param"] if openai else error["message"].partition(" ")[0].rstrip(":")
    assert field in error["message"]
    return field
