"""A model that is a pure function of the history, drafts of every kind, and what Hypothesis picks."""

import random

import torch
from hypothesis import strategies as st

from services.engine.sampling import Ask, Rules, SamplingParams, sample_and_match


def row_of(history, vocab_size, ties):
    """Logits on a coarse grid, as a bf16 head makes them; `ties` is how many distinct values there are, about."""
    rng = random.Random(repr(list(history[-3:])))
    values = torch.tensor([rng.uniform(-4, 4) for _ in range(vocab_size)])
    return (values * ties / 8).round() * 8 / ties


def generate(model, asked, length, drafter):
    """The output of some sequences [(params, prompt, stop_ids)] that share every call, by what `drafter` proposes.

    `drafter(index, output)` gives a draft. The loop is the round loop of a target without its cuts."""
    rules = [Rules(*ask) for ask in asked]
    outputs = [[] for _ in asked]
    verdicts = []
    while active := [i for i, output in enumerate(outputs) if len(output) < length]:
        asks, rows = [], []
        for i in active:
            history, draft = [*asked[i][1], *outputs[i]], drafter(i, outputs[i])
            asks.append(Ask(rules[i], len(history), draft))
            rows += [model([*history, *draft[:j]]) for j in range(len(draft) + 1)]
        for i, verdict in zip(active, sample_and_match(torch.stack(rows), asks), strict=True):
            kept = verdict.tokens[: length - len(outputs[i])]
            outputs[i] += kept
            for token in kept:
                rules[i].advance(token)
            verdicts.append(verdict)
    return outputs, verdicts


def no_drafts(index, output):
    return []


def plainly(model, asked, length):
    """One sequence at a time, one token at a time."""
    return [generate(model, [ask], length, no_drafts)[0][0] for ask in asked]


def scripted_drafts(data, truth, vocab_size):
    """Drafts of 0 to 15 tokens: the truth up to somewhere, then anything at all."""

    def drafter(index, output):
        length = data.draw(st.integers(0, 15), label="draft length")
        right = data.draw(st.integers(0, length), label="right")
        draft = truth[index][len(output) : len(output) + right]
        anything = st.integers(-1, vocab_size + 1)
        return draft + data.draw(st.lists(anything, min_size=length - len(draft), max_size=length - len(draft)))

    return drafter


def params(vocab_size):
    """Any legal parameters for a vocabulary; each option is off in about half of the cases."""

    def often(neutral, others):
        return st.just(neutral) | others

    ids = st.integers(0, vocab_size - 1)
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1e-7, 1e-4, 1e-3, 0.3, 0.7, 0.8, 1.0, 1.3, 2.0]),
        top_k=often(0, st.integers(1, vocab_size + 1)),
        top_p=often(1.0, st.sampled_from([1e-9, 0.1, 0.25, 0.5, 0.9, 0.95, 0.999999]) | st.floats(0.01, 0.99)),
        min_p=often(0.0, st.sampled_from([1e-6, 0.05, 0.1, 0.5, 1.0])),
        repetition_penalty=often(1.0, st.sampled_from([0.5, 1.1, 1.3, 2.0])),
        presence_penalty=often(0.0, st.sampled_from([-2.0, -0.5, 0.5, 1.0, 2.0])),
        frequency_penalty=often(0.0, st.sampled_from([-2.0, -0.1, 0.1, 0.7, 2.0])),
        logit_bias=often({}, st.dictionaries(ids, st.sampled_from([-100.0, -1.5, 0.5, 1.0, 100.0]), max_size=4)),
        banned=often(frozenset(), st.frozensets(ids, max_size=vocab_size // 3)),
        min_tokens=often(0, st.integers(0, 12)),
        seed=st.integers(-(2**63), 2**63 - 1),
        choice=st.integers(0, 3),
        logprobs=often(None, st.integers(0, 5)),
    )
