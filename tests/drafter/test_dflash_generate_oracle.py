"""Whole generations with a real target, drafted by ours, against z-lab's own loop: the same rounds, token for token."""

from itertools import pairwise

import pytest
import torch
from dflash import model as reference
from transformers import DynamicCache

from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import ask, feed, opened

pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")

PROMPT = [5, 80, 3, 3, 41, 9, 77, 20, 1, 64, 33]
COUNT = 40


class Run:
    """Greedy verification over transformers' target: what it keeps, and how long each round's accepted part is."""

    def __init__(self, target, drafter, oracle):
        self.target, self.drafter, self.taps = target, drafter, oracle.special["target_layer_ids"]
        self.layers = drafter.description.tap_layers
        self.rounds = []

    def forward(self, ids, cache):
        out = self.target(torch.tensor([ids]), cache=cache, use_cache=True, output_hidden_states=True)
        taps_PKH = torch.stack([out.hidden_states[layer + 1][0] for layer in self.layers], 1)
        return out.logits[0].argmax(-1).tolist(), taps_PKH

    @torch.inference_mode()
    def generate(self, prompt, count, stop=frozenset()):
        cache = DynamicCache(config=self.target.config)
        drawn, taps_PKH = self.forward(prompt, cache)
        ids = [*prompt, drawn[-1]]
        context = opened(self.drafter, first_id=prompt[0])
        feed(self.drafter, context, taps_PKH, ids[1:])
        while len(ids) < len(prompt) + count and ids[-1] not in stop:
            left = len(prompt) + count - len(ids)
            (draft,) = ask(self.drafter, context, count=min(self.drafter.description.max_draft_tokens, left))
            drawn, taps_PKH = self.forward([ids[-1], *draft.ids], cache)
            kept = 0
            while kept < len(draft.ids) and draft.ids[kept] == drawn[kept]:
                kept += 1
            fresh = drawn[: kept + 1][:left]
            stopped = next((at + 1 for at, id in enumerate(fresh) if id in stop), len(fresh))
            fresh = fresh[:stopped]
            cache.crop(len(fresh) - len(draft.ids) - 1)
            ids += fresh
            self.rounds.append((draft.ids, len(fresh)))
            feed(self.drafter, context, taps_PKH[: len(fresh)], fresh)
        return ids


def by_reference(oracle, target, monkeypatch, stop=None):
    """The reference's tokens, its drafts and the tokens that each of its rounds produced."""
    rounds, drafts = [], []
    crop = reference._crop_to

    def counted(cache, length):
        rounds.append(length)
        crop(cache, length)

    def noted(call):
        def wrapped(*args, **kwargs):
            result = call(*args, **kwargs)
            first = result[0] if oracle.version == 2 else result.argmax(-1)
            drafts.append(tuple(first[0].tolist()))
            return result

        return wrapped

    monkeypatch.setattr(reference, "_crop_to", counted)
    name = "propose" if oracle.version == 2 else "compute_logits"
    monkeypatch.setattr(oracle.model, name, noted(getattr(oracle.model, name)))
    ids = oracle.model.spec_generate(target, torch.tensor([PROMPT]), COUNT, stop)[0].tolist()
    ends = sorted(set(rounds))
    return ids, drafts, [end - start for start, end in pairwise(ends)]


def loud_target(**changed):
    """A random drafter agrees with nobody; where two rows of the head outshout the others, it does half of the time."""
    target = tiny.tiny_target(**changed)
    with torch.no_grad():
        target.lm_head.weight[12] *= 20
        target.lm_head.weight[45] = -target.lm_head.weight[12]
    return target


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "kind",
    [{}, {"windows": [13, 13, None]}, {"windows": [13, 13], "is_causal": False}, {"is_causal": True}],
    ids=["full", "windows", "bidirectional windows", "causal"],
)
def test_oracle_rounds_are_the_references_own(tmp_path, monkeypatch, version, kind):
    target = loud_target()
    oracle = tiny.tiny(version, target=target, **kind)
    run = Run(target, tiny.load(tmp_path, oracle), oracle)
    ids = run.generate(PROMPT, COUNT)
    expected, drafts, lengths = by_reference(oracle, target, monkeypatch)
    assert ids == expected
    # At the very end the reference cuts the block itself, which changes its rows; ours is drafted whole and cut then.
    whole = sum(len(draft) == oracle.block_size - 1 for draft in drafts)
    assert [draft for draft, _ in run.rounds][:whole] == drafts[:whole]
    assert [length for _, length in run.rounds][:whole] == lengths[:whole]
    assert min(lengths) == 1 < max(lengths), "there were misses and hits"


@pytest.mark.parametrize("version", [1, 2])
def test_oracle_a_stop_token_ends_both_alike_even_if_it_is_the_mask(tmp_path, monkeypatch, version):
    """Only tokens that were kept can stop: a block is full of masks."""
    target = loud_target()
    free = tiny.tiny(version, target=target)
    plain = Run(target, tiny.load(tmp_path / "free", free), free).generate(PROMPT, COUNT)
    late = plain[len(PROMPT) + 20 :]
    stop = next(id for id in late if id not in plain[: len(PROMPT) + 20])
    oracle = tiny.tiny(version, target=target, special={"mask_token_id": stop})
    run = Run(target, tiny.load(tmp_path / "mask", oracle), oracle)
    ids = run.generate(PROMPT, COUNT, frozenset({stop}))
    assert ids == plain[: plain.index(stop) + 1]
    assert ids == by_reference(oracle, target, monkeypatch, [stop])[0]


@pytest.mark.parametrize("version", [1, 2])
def test_oracle_a_tied_target_lends_its_embedding_as_head(tmp_path, monkeypatch, version):
    target = tiny.tiny_target(tie_word_embeddings=True)
    oracle = tiny.tiny(version, target=target)
    folder = tmp_path / "target"
    target.save_pretrained(folder)
    drafter = tiny.DFlashDrafter.load(
        tiny.MODES[version], tiny.write_drafter(tmp_path / "drafter", oracle), tiny.borrow(folder), draws="argmax"
    )
    run = Run(target, drafter, oracle)
    expected, drafts, _ = by_reference(oracle, target, monkeypatch)
    assert run.generate(PROMPT, COUNT) == expected
    assert run.rounds[0][0] == drafts[0]
