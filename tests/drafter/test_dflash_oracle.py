"""The layers, and the drafts they lead to, against z-lab's own package: PyPI `dflash`, the reference implementation.

It computes everything in fp32 here, and so does ours: what is left is the order of sums. Hidden states are of size 1.
"""

import pytest
import torch

from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import ask, feed_in_pieces, opened, random_taps

TOLERANCE = 1e-5
ANCHOR = 17

KINDS = {
    "full": {},
    "windows": {"windows": [7, 7, 7], "is_causal": False},
    "windows and one full": {"windows": [7, 7, None], "is_causal": False},
    "causal windows and one full": {"windows": [7, 7, None]},
    "all causal": {"windows": [7, 7, None], "is_causal": True},
    "causal without windows": {"is_causal": True},
    "window of one": {"windows": [1, None], "is_causal": False},
    "window inside the block": {"windows": [3, 3], "is_causal": False},
    "biases": {"attention_bias": True},
    "one layer": {"num_hidden_layers": 1, "special": {"target_layer_ids": [4, 2, 6]}},
    "no groups": {"num_key_value_heads": 4},
    "all in one group": {"num_key_value_heads": 1},
    "block of two": {"special": {"block_size": 2}},
    "frequencies in parts": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 3e4,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
}
SCALED = {"output_multiplier": 0.3, "final_logit_softcapping": 2.0, "input_embedding_scale": 1.7}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_oracle_hidden_states(tmp_path, version, kind):
    oracle = tiny.tiny(version, **KINDS[kind])
    body = tiny.body(tmp_path, oracle)
    taps_PKH = random_taps(23)
    memory = body.memory()
    body.absorb(taps_PKH.flatten(1), [memory], [23])
    hidden_BH = body(oracle.block(ANCHOR), [memory])
    torch.testing.assert_close(hidden_BH, oracle.hidden(taps_PKH, ANCHOR), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("windows", [[9, 9], [9, None], None], ids=str)
@pytest.mark.parametrize("length", [1, 2, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 40])
def test_oracle_contexts_around_the_sizes_of_window_and_block(tmp_path, version, windows, length):
    """Window 9 and block 6: contexts one short of each, of their sum, equal and one more."""
    oracle = tiny.tiny(version, windows=windows)
    body, taps_PKH = tiny.body(tmp_path, oracle), random_taps(length)
    memory = body.memory()
    body.absorb(taps_PKH.flatten(1), [memory], [length])
    hidden_BH = body(oracle.block(ANCHOR), [memory])
    torch.testing.assert_close(hidden_BH, oracle.hidden(taps_PKH, ANCHOR), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("special", [{}, SCALED], ids=["plain", "scaled"])
@pytest.mark.parametrize(
    "pieces",
    [[150], [1] * 20, [128, 1, 2, 147], [127, 1], [134, 3], [3, 134]],
    ids=lambda pieces: f"{len(pieces)} pieces",
)
def test_oracle_drafts_of_contexts_fed_in_pieces(tmp_path, version, special, pieces):
    """Confidences are of the logits after multiplier and cap, so they hold those to the oracle's."""
    oracle = tiny.tiny(version, windows=[11, 11, None], is_causal=False, special=special)
    drafter, taps_PKH = tiny.load(tmp_path, oracle), random_taps(sum(pieces))
    context = opened(drafter)
    feed_in_pieces(drafter, context, taps_PKH, ANCHOR, pieces)
    ids, logits_JV = oracle.drafts(taps_PKH, ANCHOR)
    (draft,) = ask(drafter, context)
    assert list(draft.ids) == ids
    if version == 1:
        expected = logits_JV.softmax(-1).amax(-1)
        torch.testing.assert_close(torch.tensor(draft.confidences), expected, rtol=1e-4, atol=TOLERANCE)


@pytest.mark.parametrize("version", [1, 2])
def test_oracle_drafts_round_after_round(tmp_path, version):
    """A context drafts, is fed what was kept, and drafts again, past its window several times."""
    oracle = tiny.tiny(version, windows=[11, 11, None])
    drafter, taps_PKH = tiny.load(tmp_path, oracle), random_taps(120)
    context = opened(drafter)
    for kept in [40, 1, 6, 3, 6, 6, 1, 2, 6, 6, 6, 37]:
        start = context.fed
        anchor = (start * 7) % 90
        feed_in_pieces(drafter, context, taps_PKH[start : start + kept], anchor, [kept])
        assert list(ask(drafter, context)[0].ids) == oracle.drafts(taps_PKH[: start + kept], anchor)[0]


def test_oracle_drafts_of_the_candidate_selector_depend_on_the_anchor(tmp_path):
    """With codebooks this large the walk decides, not the row: the plain likeliest ids would be others."""
    oracle = tiny.tiny(2)
    drafter, taps_PKH = tiny.load(tmp_path, oracle), random_taps(9)
    walked = set()
    for anchor in range(8):
        context = opened(drafter)
        feed_in_pieces(drafter, context, taps_PKH, anchor, [9])
        (draft,) = ask(drafter, context)
        ids, logits_JV = oracle.drafts(taps_PKH, anchor)
        assert list(draft.ids) == ids
        walked.add(ids != logits_JV.argmax(-1).tolist())
    assert walked == {True}


def test_bf16_is_near_fp32(tmp_path):
    oracle = tiny.tiny(2, windows=[11, None])
    exact, rounded = tiny.load(tmp_path, oracle), tiny.load(tmp_path, oracle, dtype=torch.bfloat16)
    taps_PKH = random_taps(50).bfloat16()
    drafts = []
    for drafter, given_PKH in ((exact, taps_PKH.float()), (rounded, taps_PKH)):
        context = opened(drafter)
        feed_in_pieces(drafter, context, given_PKH, ANCHOR, [50])
        drafts.append(ask(drafter, context)[0].ids)
    assert drafts[0][:2] == drafts[1][:2]
