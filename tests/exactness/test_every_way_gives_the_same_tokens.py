"""The law on the real model, through all three programs: however a request is served, its token ids are the same.

What varies: the number format, how the prompt is cut into chunks, the draft length (0 is no speculation), the
temperature, the face of the gateway, and whether other requests run beside it.
"""

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pytest

from tests.exactness.pairs import all_pairs
from tests.system.running import Tandem, chat, tandem

WHOLE = 8192
FACTORS = {
    "dtype": ["bf16", "fp32"],
    "chunk": [16, 64, WHOLE],
    "draft": list(range(16)),
    "temperature": [0.0, 0.8],
    "face": ["grpc", "sse", "json"],
    "company": [0, 7],
}
PROMPTS = [
    "Repeat this line four times: the quick brown fox jumps over the lazy dog and runs away from the bear.",
    "Write a short letter to a friend in another country, and tell them what you did in the garden this spring.",
]
CROWD = ["Count from one to fifty.", "Why is the sky blue?", "Write a poem about rain.", "Name ten animals."]
TOKENS = 48
QUICK = [
    {"dtype": "bf16", "chunk": 16, "draft": 7, "temperature": 0.0, "face": "grpc", "company": 0},
    {"dtype": "bf16", "chunk": 16, "draft": 15, "temperature": 0.8, "face": "json", "company": 7},
    {"dtype": "bf16", "chunk": WHOLE, "draft": 0, "temperature": 0.8, "face": "sse", "company": 7},
    {"dtype": "bf16", "chunk": WHOLE, "draft": 3, "temperature": 0.0, "face": "sse", "company": 0},
    {"dtype": "fp32", "chunk": 64, "draft": 7, "temperature": 0.8, "face": "sse", "company": 0},
    {"dtype": "fp32", "chunk": 64, "draft": 12, "temperature": 0.0, "face": "grpc", "company": 7},
]


def ask(running: Tandem, prompt: str, combination: dict) -> list[int]:
    """The token ids of one answer."""
    draft, temperature = combination["draft"], combination["temperature"]
    request = chat(
        prompt,
        TOKENS,
        mode="ngram" if draft else "none",
        max_draft_tokens=draft or None,
        temperature=temperature,
        top_p=0.95 if temperature else None,
        seed=11,
        strict=draft > 0,
    )
    if combination["face"] == "grpc":
        return running.ask(request).ids
    body = {
        "model": running.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": temperature,
        "top_p": 0.95 if temperature else 1.0,
        "seed": 11,
        "stream": combination["face"] == "sse",
        "return_token_ids": True,
        "speculation": {"mode": "ngram", "max_draft_tokens": draft, "strict": True} if draft else "none",
    }
    post = urllib.request.Request(
        f"{running.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(post, timeout=300) as response:
        if combination["face"] == "json":
            return json.load(response)["choices"][0]["token_ids"]
        events = [line[6:] for line in response.read().decode().splitlines() if line.startswith("data: {")]
    return [id for event in events for choice in json.loads(event)["choices"] for id in choice.get("token_ids") or ()]


def in_company(running: Tandem, combination: dict) -> list[list[int]]:
    with ThreadPoolExecutor(8) as pool:
        others = [
            pool.submit(
                running.ask, chat(CROWD[i % len(CROWD)], 60, mode=("ngram", "none")[i % 2], seed=i, temperature=1)
            )
            for i in range(combination["company"])
        ]
        answers = [ask(running, prompt, combination) for prompt in PROMPTS]
        for other in others:
            assert other.result().ids
    return answers


def check(model, combinations: list[dict]) -> None:
    by_server = sorted(combinations, key=lambda each: (each["dtype"], each["chunk"]))
    plain: dict[tuple[str, float], list[list[int]]] = {}
    differing = []
    for (dtype, chunk), group in groupby(by_server, key=lambda each: (each["dtype"], each["chunk"])):
        environment = {
            "TANDEM_TARGET_DTYPE": dtype,
            "TANDEM_TARGET_PREFILL_CHUNK": str(chunk),
            "TANDEM_TARGET_ROUND_TOKENS": str(max(chunk, 256)),
        }
        with tandem(model, environment=environment) as running:
            for combination in group:
                key = (dtype, combination["temperature"])
                if key not in plain:
                    alone = combination | {"draft": 0, "face": "grpc", "company": 0}
                    plain[key] = in_company(running, alone)
                if in_company(running, combination) != plain[key]:
                    differing.append(combination)
    assert not differing
    assert all(len(ids) == TOKENS or ids[-1] == 2 for answers in plain.values() for ids in answers)


def test_six_ways_give_the_same_tokens(embedded_model) -> None:
    check(embedded_model, QUICK)


@pytest.mark.full
def test_every_pair_of_ways_gives_the_same_tokens(embedded_model) -> None:
    combinations = all_pairs(FACTORS)
    assert {(each["dtype"], each["draft"]) for each in combinations} == {
        (dtype, draft) for dtype in FACTORS["dtype"] for draft in FACTORS["draft"]
    }
    check(embedded_model, combinations)
