"""The main road, as a user walks it: the printed curl line, the SDK, gRPC."""

import json
import subprocess
import urllib.error
import urllib.request

import openai
import pytest

from services.supervisor.serve import QUESTION
from services.wire.codec import MODES, REASONS
from tests.system.running import Tandem, chat, one_word

MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def client(served: Tandem):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_the_printed_curl_line_streams_an_answer(served: Tandem) -> None:
    done = subprocess.run(["bash", "-c", served.curl], capture_output=True, text=True, timeout=60, check=True)
    events = [line.removeprefix("data: ") for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert "Tokyo" in text
    assert chunks[-1]["speculation"]["exact"] is True


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["auto", "none", "ngram", "mtp", "dflash", "dflash2"])
def test_every_mode_answers_alike_through_the_official_client(served, client, mode: str, stream: bool) -> None:
    made = client.chat.completions.create(
        model=served.model, messages=MESSAGES, temperature=0, max_tokens=24, stream=stream,
        extra_body={"speculation": mode},
    )  # fmt: skip
    chunks = list(made) if stream else [made]
    texts = [choice.delta.content if stream else choice.message.content for each in chunks for choice in each.choices]
    assert "".join(text or "" for text in texts) == "The capital of Japan is Tokyo."
    report = chunks[-1].speculation
    assert report["requested"] == mode
    loaded = mode in ("auto", "none", "ngram")
    assert report["resolved"] == ("ngram" if mode == "auto" else mode if loaded else "none")
    assert report["reason"] == (None if loaded else "drafter_not_loaded")


def test_grpc_streams_the_same_answer(served: Tandem) -> None:
    answer = served.ask(chat(QUESTION, 24))
    assert answer.text == "The capital of Japan is Tokyo."
    assert answer.report.resolved == MODES.value("ngram")
    assert answer.report.reason == REASONS.value(None)
    assert len(answer.ids) == sum(getattr(answer.report.by_origin, name) for name in
                                  ("first", "accepted", "correction", "bonus", "plain"))  # fmt: skip


def test_drafts_are_accepted_on_text_that_repeats(served: Tandem) -> None:
    answer = served.ask(one_word(64))
    assert answer.text == " hello" * 64
    assert answer.report.accepted > 10
    assert answer.rounds < len(answer.ids)


def test_an_unknown_mode_is_refused_with_the_legal_ones(served: Tandem) -> None:
    body = json.dumps({"model": served.model, "messages": MESSAGES, "speculation": "fast"}).encode()
    request = urllib.request.Request(f"{served.url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as response:
        error = json.load(response)["error"]
    assert response.status == 400
    assert "speculation" in error["param"]
    assert all(mode in error["message"] for mode in MODES.legal)


@pytest.mark.parametrize(("path", "status"), [("/live", 200), ("/ready", 200), ("/v1/models", 200)])
def test_the_operator_routes_answer(served: Tandem, path: str, status: int) -> None:
    with urllib.request.urlopen(served.url + path) as response:
        assert response.status == status
