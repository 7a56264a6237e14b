"""Requests to a running stack, as clients send them: one prompt, exactly so many tokens."""

import json
import subprocess
import threading
from dataclasses import dataclass, field

import anthropic
import grpc
import openai
from stack import Stack
from tandem.v1 import generation_pb2, types_pb2
from tandem.v1.generation_pb2_grpc import GenerationServiceStub
from tandem.v1.target_pb2 import DrafterState

from services.shipped.embedded import SMOLLM2
from services.wire.codec import MODES, REASONS
from services.wire.limits import CLIENT_OPTIONS

MESSAGES = [{"role": "user", "content": "Write the numbers from 1 to 60, separated by commas."}]
TOKENS = 160


@dataclass
class Answer:
    ids: list[int] = field(default_factory=list)
    text: str = ""
    prompt_tokens: int = 0
    resolved: str | None = None
    reason: str | None = None
    drafted: dict[str, int] = field(default_factory=dict)
    """Drafts that were verified, and those of them that were kept, by drafter."""
    accepted: dict[str, int] = field(default_factory=dict)


def ask(
    stack: Stack, mode: str, tokens: int = TOKENS, *, strict: bool = False, seen: threading.Event | None = None
) -> Answer:
    """Over gRPC, for the ids; `seen` is set when the stream has begun."""
    request = generation_pb2.GenerateRequest(
        chat=generation_pb2.Chat(messages=[generation_pb2.ChatMessage(**message) for message in MESSAGES]),
        max_tokens=tokens,
        sampling=types_pb2.Sampling(temperature=0, seed=1),
        stopping=types_pb2.Stopping(ignore_eos=True),
        speculation=types_pb2.Speculation(mode=MODES.value(mode), strict=strict, stats=True),
    )
    answer = Answer()
    with _channel(stack) as channel:
        for response in GenerationServiceStub(channel).Generate(request, timeout=300):
            answer.ids += [token.id for token in response.tokens]
            answer.text += response.text
            if response.HasField("report"):
                report, answer.prompt_tokens = response.report, response.usage.prompt_tokens
                answer.resolved, answer.reason = MODES.name(report.resolved), REASONS.name(report.reason)
                answer.drafted = {MODES.name(each.mode): each.drafted for each in report.by_mode if each.drafted}
                answer.accepted = {MODES.name(each.mode): each.accepted for each in report.by_mode if each.drafted}
            if seen and len(answer.ids) > 5:
                seen.set()
    return answer


def drafters(stack: Stack) -> dict[str, DrafterState]:
    """What the target says of the drafters that it knows, by mode."""
    with _channel(stack) as channel:
        described = GenerationServiceStub(channel).Describe(generation_pb2.DescribeRequest(), timeout=30)
    return {MODES.name(each.mode): each for each in described.target.drafters}


def _channel(stack: Stack) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{stack.grpc_port}", options=CLIENT_OPTIONS)


def body(**fields) -> dict:
    known = {"model": SMOLLM2.name, "messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0, "seed": 1}
    return known | {"stream": True} | fields


def through_curl(stack: Stack, mode: str) -> str:
    url = f"http://127.0.0.1:{stack.port}/v1/chat/completions"
    sent = json.dumps(body(**_ours(mode)))
    command = ["curl", "--silent", "--fail", "--no-buffer", "--noproxy", "*", url]
    done = subprocess.run(
        [*command, "-H", "Content-Type: application/json", "-d", sent], stdout=subprocess.PIPE, text=True, check=True
    )
    *events, last = [event.removeprefix("data: ") for event in done.stdout.strip().split("\n\n") if event[0] != ":"]
    assert last == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[-1]["speculation"]["resolved"] == mode
    assert chunks[-1]["speculation"]["drafted"] > 0
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def through_openai(stack: Stack, mode: str) -> str:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", http_client=http) as client:
        stream = client.chat.completions.create(**body(), extra_body=_ours(mode))
        return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def through_anthropic(stack: Stack, mode: str) -> str:
    http = anthropic.DefaultHttpxClient(trust_env=False)
    address = f"http://127.0.0.1:{stack.port}"
    with anthropic.Anthropic(base_url=address, api_key="none", http_client=http) as client:
        known = {"model": SMOLLM2.name, "messages": MESSAGES, "max_tokens": TOKENS}
        ours = {"temperature": 0, "seed": 1} | _ours(mode)
        with client.messages.stream(**known, extra_body=ours) as stream:
            return "".join(stream.text_stream)


def _ours(mode: str) -> dict:
    """Fields that are not OpenAI's or Anthropic's."""
    return {"speculation": {"mode": mode, "strict": True}, "ignore_eos": True}
