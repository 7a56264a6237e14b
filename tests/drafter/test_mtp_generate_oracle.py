"""Every round of transformers' own generation with a multi-token-prediction module has the drafts that ours makes."""

from itertools import pairwise

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.candidate_generator import MTPCandidateGenerator
from transformers.modeling_layers import MtpModel

from services.drafter.mtp import MtpDrafter
from tests.drafter import mtp_oracle as tiny
from tests.drafter.mtp_oracle import Fed, borrowed, build, tokens

FEW = 3  # ids, so that random drafts are accepted in part
PROMPTS = (3, 66, 90)  # of 64 and more, the first positions are computed as they come


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_rounds_of_generation_draft_what_the_oracle_drafts(family, layers, tmp_path, monkeypatch):
    oracle = build(family, layers=layers, vocab_size=FEW)
    oracle.target.save_pretrained(tmp_path)
    tiny.write_own(tmp_path / "own", oracle, layers=layers)
    drafter = MtpDrafter.load(tmp_path / "own", borrowed(tmp_path, vocab_size=FEW), draws="argmax")
    rounds_of = recorder(oracle, monkeypatch)
    accepted = set()
    for count in PROMPTS:
        rounds = rounds_of(tokens(count, seed=count, vocab_size=FEW))
        fed = Fed(drafter, oracle, rounds[-1][0])
        for known, drafted in rounds:
            fed.feed(len(known) - 1)
            assert list(fed.draft(layers).ids) == drafted
        accepted |= {len(after) - len(before) - 1 for (before, _), (after, _) in pairwise(rounds)}
    assert {0, 1} <= accepted, "a draft has to be refused, and one kept at least in part"


def recorder(oracle, monkeypatch):
    """From a prompt to the (ids known, ids drafted) of every round."""
    rounds = []
    candidates = MTPCandidateGenerator.get_candidates

    def recording(self, input_ids, *others, is_first_iteration, **more):
        ids, logits = candidates(self, input_ids, *others, is_first_iteration=is_first_iteration, **more)
        if not is_first_iteration:
            known = input_ids[0].tolist()
            rounds.append((known, ids[0].tolist()[len(known) :]))
        return ids, logits

    monkeypatch.setattr(MTPCandidateGenerator, "get_candidates", recording)
    monkeypatch.setattr(MtpModel, "from_pretrained", classmethod(lambda *_, **__: oracle.module))
    settings = GenerationConfig(
        max_new_tokens=40, do_sample=False, use_mtp=True, eos_token_id=None, bos_token_id=None, pad_token_id=0
    )
    oracle.target.generation_config.eos_token_id = None  # or it takes the place of the None above

    def rounds_of(prompt):
        rounds.clear()
        ids = torch.tensor([prompt])
        oracle.target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        return list(rounds)

    return rounds_of
