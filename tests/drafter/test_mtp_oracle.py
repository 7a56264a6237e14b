"""Tiny random multi-token-prediction modules draft what transformers' own module makes of the same ids and states."""

import pytest
import torch

from services.drafter import mtp
from services.drafter.interface import Ask
from services.drafter.mtp import MtpDrafter
from tests.drafter import mtp_oracle as tiny
from tests.drafter.mtp_oracle import TARGETS, Fed, borrowed, build, tokens

CLOSE = 1e-5  # of the largest logit
MODULES = [*((family, 1) for family in TARGETS), ("llama", 3), ("qwen3_next", 3), ("qwen3_5 wrapped", 3)]


@pytest.fixture(params=MODULES, ids=str, scope="module")
def pair(request, tmp_path_factory):
    """A drafter from a folder of its own, but for the families whose targets have the module inside."""
    family, layers = request.param
    folder = tmp_path_factory.mktemp("target")
    oracle = build(family, layers=layers)
    if family in tiny.PLAIN_NORMS:
        oracle.target.save_pretrained(folder)
        tiny.write_own(folder / "own", oracle, layers=layers)
        return MtpDrafter.load(folder / "own", borrowed(folder), draws="argmax"), oracle
    tiny.write_target(folder, oracle)
    tiny.edit_config(folder, mtp_num_hidden_layers=layers)
    return MtpDrafter.load(folder, borrowed(folder), draws="argmax"), oracle


@pytest.fixture
def rows(monkeypatch):
    """The logits of all rows drawn since, in order."""
    seen, draw = [], mtp.draw

    def drawing(rows_RD, *others):
        seen.extend(rows_RD)
        return draw(rows_RD, *others)

    monkeypatch.setattr(mtp, "draw", drawing)
    return seen


def agree(drafted, rows, expected):
    ids, logits = expected
    assert list(drafted.ids) == ids
    assert (torch.stack(rows) - logits).abs().max() < CLOSE * logits.abs().max()
    confidences = torch.tensor(drafted.confidences)
    torch.testing.assert_close(confidences, logits.softmax(-1).amax(-1), rtol=1e-4, atol=1e-5)
    rows.clear()


@pytest.mark.parametrize("count", range(1, 9))
def test_drafts_of_any_length_equal_the_oracle(pair, rows, count):
    fed = Fed(*pair, tokens(24)).feed(23)
    agree(fed.draft(count), rows, fed.expected(count))


@pytest.mark.parametrize("fed_positions", [1, 2, 3, 4])
def test_the_shortest_contexts_equal_the_oracle(pair, rows, fed_positions):
    fed = Fed(*pair, tokens(9)).feed(fed_positions)
    agree(fed.draft(6), rows, fed.expected(6))
    fed.feed(fed_positions + 1)
    agree(fed.draft(2), rows, fed.expected(2))
    fed.feed(fed_positions + 4)
    agree(fed.draft(5), rows, fed.expected(5))


@pytest.mark.parametrize(
    "ends", [(126,), (127,), (128,), (129,), (130,), (127, 255, 257), (1, 129), (128, 256), (129, 130, 258)]
)
def test_prompts_over_the_borders_of_feeds_equal_the_oracle(pair, rows, ends):
    """128 positions are computed as they come; a border's last row ends in the first id of the next feed."""
    fed = Fed(*pair, tokens(259)).feed(*ends)
    agree(fed.draft(4), rows, fed.expected(4))


@pytest.mark.parametrize("drafted", [1, 2, 5])
def test_after_any_part_was_accepted_drafts_equal_the_oracle(pair, rows, drafted):
    """What was committed comes with the target's states, which replace the rows that the draft left."""
    fed = Fed(*pair, tokens(60)).feed(20)
    for kept in (0, drafted, 1, 0, drafted // 2, drafted):
        agree(fed.draft(drafted), rows, fed.expected(drafted))
        fed.feed(fed.context.fed + kept + 1)
    agree(fed.draft(6), rows, fed.expected(6))


def test_rounds_without_a_draft_leave_no_hole_in_the_oracle(pair, rows):
    """Feeds of single positions, until enough have gathered to be computed at once."""
    fed = Fed(*pair, tokens(150)).feed(*range(3, 140))
    agree(fed.draft(4), rows, fed.expected(4))


def test_asking_again_gives_the_same_draft_as_the_oracle(pair, rows):
    fed = Fed(*pair, tokens(30)).feed(29)
    for count in (3, 1, 8):
        agree(fed.draft(count), rows, fed.expected(count))


def test_a_batch_of_unlike_sequences_equals_the_oracle(pair):
    drafter, oracle = pair
    sequences = [Fed(drafter, oracle, tokens(120, seed)).feed(end) for seed, end in enumerate((5, 90, 1, 33))]
    counts = (3, 8, 1, 2)
    for _ in range(2):
        asks = [Ask(each.context, count) for each, count in zip(sequences, counts, strict=True)]
        for fed, count, draft in zip(sequences, counts, drafter.draft(asks), strict=True):
            ids, logits = fed.expected(count)
            assert list(draft.ids) == ids
            sure = logits.softmax(-1).amax(-1)
            torch.testing.assert_close(torch.tensor(draft.confidences), sure, rtol=1e-4, atol=1e-5)
        for kept, fed in enumerate(sequences):
            fed.feed(fed.context.fed + 1 + kept)
