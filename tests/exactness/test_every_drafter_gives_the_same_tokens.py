"""All modes side by side in one batch, on the real model and through all programs: each gives what `none` gives."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.wire.codec import MODES
from tests.exactness.drafters import write_all, write_qwen3
from tests.system.running import Answer, Tandem, chat, tandem

TOKENS = 48
PROMPTS = [
    "Repeat this line four times: the quick brown fox jumps over the lazy dog and runs away from the bear.",
    "Write a short letter to a friend in another country, and tell them what you did in the garden this spring.",
]
TEMPERATURES = (0.0, 0.8)
DRAFTED = ("ngram", "mtp", "dflash", "dflash2", "auto")


@pytest.fixture(scope="module", params=["llama", "qwen3", pytest.param("messages", marks=pytest.mark.full)])
def running(request, embedded_model, tmp_path_factory) -> Iterator[Tandem]:
    """The embedded model, and a small one of the other family, with taps in shared memory; and with taps in messages:
    then the two programs name different folders."""
    root = tmp_path_factory.mktemp("drafters")
    model = write_qwen3(root / "qwen3", embedded_model) if request.param == "qwen3" else embedded_model
    environment = write_all(root, model)
    if request.param == "messages":
        environment["TANDEM_DRAFTER_TAP_DIR"] = str(root)
    way = "messages" if request.param == "messages" else "shared memory"
    with tandem(model, environment=environment) as serving:
        assert any(f"taps in {way}" in line for line in serving.log)
        yield serving


def ask(
    running: Tandem,
    prompt: str,
    temperature: float,
    mode: str,
    *,
    tokens: int = TOKENS,
    seen: threading.Event | None = None,
) -> Answer:
    strict = mode not in ("auto", "none")  # bad drafters would soon be left alone
    top_p = 0.95 if temperature else None
    asked = chat(prompt, tokens, mode=mode, temperature=temperature, top_p=top_p, seed=7, strict=strict)
    return running.ask(asked, seen=seen)


def test_modes_side_by_side_give_what_none_gives_alone(running):
    cases = [(prompt, temperature) for prompt in PROMPTS for temperature in TEMPERATURES]
    plain = {case: ask(running, *case, "none").ids for case in cases}
    with ThreadPoolExecutor(len(cases) * len(DRAFTED)) as pool:
        asked = {(case, mode): pool.submit(ask, running, *case, mode) for mode in DRAFTED for case in cases}
        answers = {key: answer.result() for key, answer in asked.items()}
    assert [key for key, answer in answers.items() if answer.ids != plain[key[0]]] == []
    for (_, mode), answer in answers.items():
        assert mode == "auto" or MODES.name(answer.report.resolved) == mode
        assert answer.report.drafted > 0 or mode in ("auto", "ngram")
    accepted = sum(answer.report.accepted for (_, mode), answer in answers.items() if mode not in ("ngram", "auto"))
    assert accepted > 0 or running.model == "qwen3"  # whose words are random


def test_a_drafter_that_is_killed_changes_nothing_and_drafts_again_when_it_is_back(running):
    modes = ("mtp", "dflash", "dflash2")
    plain = ask(running, PROMPTS[1], 0.0, "none", tokens=200).ids
    seen = [threading.Event() for _ in modes]
    with ThreadPoolExecutor(len(modes)) as pool:
        asked = [
            pool.submit(ask, running, PROMPTS[1], 0.0, mode, tokens=200, seen=event)
            for mode, event in zip(modes, seen, strict=True)
        ]
        assert all(event.wait(60) for event in seen)
        running.kill("drafter")
        assert [each.result().ids for each in asked] == [plain] * len(modes)
    for mode in modes:
        again = chat(PROMPTS[1], TOKENS, mode=mode, seed=7, strict=True)
        assert running.ask_until_drafted(again).ids == plain[:TOKENS]
