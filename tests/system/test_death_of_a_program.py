"""A program is killed while others depend on it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.system.running import chat, one_word, tandem

PROMPTS = [f"Write the numbers from {start} to {start + 30}, separated by commas." for start in range(8)]


TOKENS = 48


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_killed_drafter_costs_nothing_but_time(embedded_model) -> None:
    with tandem(embedded_model) as running, ThreadPoolExecutor(8) as pool:
        plain = list(pool.map(lambda prompt: running.ask(chat(prompt, TOKENS, mode="none")).ids, PROMPTS))
        seen = [threading.Event() for _ in PROMPTS]
        asked = [
            pool.submit(running.ask, chat(prompt, TOKENS, strict=True), seen=event)
            for prompt, event in zip(PROMPTS, seen, strict=True)
        ]
        for event in seen:
            assert event.wait(60)
        killed = running.kill("drafter")
        assert [each.result().ids for each in asked] == plain
        assert running.ask_until_drafted(one_word(64)).report.accepted > 0
        assert running.child("drafter") != killed


def test_a_killed_target_ends_everything_with_a_clean_error(embedded_model) -> None:
    with tandem(embedded_model) as running, ThreadPoolExecutor(1) as pool:
        seen = threading.Event()
        asked = pool.submit(running.ask, chat(PROMPTS[0], 1000, mode="none"), seen=seen)
        assert seen.wait(60)
        children = [running.child(role) for role in ("gateway", "target", "drafter")]
        running.kill("target")
        with pytest.raises(grpc.RpcError) as error:
            asked.result()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "Traceback" not in error.value.details()
        assert running.process.wait(60) != 0
        assert not any(map(alive, children))
