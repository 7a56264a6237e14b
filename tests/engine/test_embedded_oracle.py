"""The embedded model, fp32: greedy answers are exactly those of transformers on the same folder."""

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from services.engine.engine import Engine
from tests.engine.tiny import feed, greedy

PROMPTS = [
    "What is the capital of France?",
    "Give me three tips for better sleep.",
    "Why is the sky blue? Answer in two sentences.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Write a haiku about the sea.",
    "Translate to Spanish: The cat sleeps on the warm roof.",
    "A train travels 60 km in 45 minutes. How fast is it in km/h?",
    "Explain to a child what a computer is, then to an engineer.",
]
NEARLY_TIED = 1e-4  # two kernels may order such logits otherwise
STOP = 2


@pytest.fixture(scope="module")
def oracle(embedded_model):
    return LlamaForCausalLM.from_pretrained(embedded_model, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def engine(embedded_model):
    return Engine.load(embedded_model, dtype=torch.float32, cache_rows=1024)


def equal_the_oracle(engine, oracle, tokenizer, prompt, count):
    text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(text).ids
    whole = oracle.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=count, do_sample=False
    )
    expected = whole[0, len(ids) :].tolist()
    seen = greedy(engine, ids, count, stop=frozenset({STOP}))
    if seen != expected:
        place = next(place for place, pair in enumerate(zip(seen, expected, strict=False)) if pair[0] != pair[1])
        slot = engine.open(len(ids) + place)
        best = feed(engine, slot, ids + seen[:place]).logits_RV[-1].topk(2).values
        engine.close(slot)
        margin = float(best[0] - best[1])
        assert margin < NEARLY_TIED, f"token {place} of {prompt!r} differs, with a margin of {margin} to the second"


@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_the_beginning_of_an_answer_equals_the_oracle(embedded_model, engine, oracle, prompt):
    equal_the_oracle(engine, oracle, Tokenizer.from_file(str(embedded_model / "tokenizer.json")), prompt, 32)


@pytest.mark.full
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_long_answer_equals_the_oracle(embedded_model, engine, oracle, prompt):
    equal_the_oracle(engine, oracle, Tokenizer.from_file(str(embedded_model / "tokenizer.json")), prompt, 128)
