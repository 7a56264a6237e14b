"""Every way in which a folder may hold a module drafts as transformers does, which reads what it can by itself."""

import pytest
import torch
from transformers.modeling_layers import MtpModel

from services.drafter.mtp import MtpDrafter
from tests.drafter import mtp_oracle as tiny
from tests.drafter.mtp_oracle import TARGETS, Fed, Oracle, borrowed, build, edit_config, edit_tensors, tokens

INSIDE = [family for family in TARGETS if family not in tiny.PLAIN_NORMS]


def load(folder, target=None, **options):
    return MtpDrafter.load(folder, borrowed(target or folder, **options), draws="argmax")


def agree(drafter, oracle, count=5):
    fed = Fed(drafter, oracle, tokens(80)).feed(70, 79)
    ids, logits = fed.expected(count)
    draft = fed.draft(count)
    assert list(draft.ids) == ids
    sure = logits.softmax(-1).amax(-1)
    torch.testing.assert_close(torch.tensor(draft.confidences), sure, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused_experts", [True, False])
@pytest.mark.parametrize("family", INSIDE)
def test_a_targets_folder_is_read_as_the_oracle_reads_it(family, fused_experts, tmp_path):
    made = build(family)
    tiny.write_target(tmp_path, made, fused_experts=fused_experts)
    agree(load(tmp_path), made)
    if family == "qwen3_5_moe wrapped" and not fused_experts:
        return  # which the oracle cannot read back
    target = type(made.target).from_pretrained(tmp_path).eval()
    agree(load(tmp_path), Oracle(target, MtpModel.from_pretrained(target)))


@pytest.mark.parametrize("fused_experts", [True, False])
@pytest.mark.parametrize("family", TARGETS)
def test_a_folder_of_its_own_drafts_as_the_oracle(family, fused_experts, tmp_path):
    oracle = build(family)
    oracle.target.save_pretrained(tmp_path)
    tiny.write_own(tmp_path / "own", oracle, layers=1, fused_experts=fused_experts)
    agree(load(tmp_path / "own", tmp_path), oracle)


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
def test_a_folder_of_its_own_may_put_the_hidden_state_first_as_the_oracle_may(family, tmp_path):
    oracle = build(family, mtp_hidden_states_first=True)
    oracle.target.save_pretrained(tmp_path)
    tiny.write_own(tmp_path / "own", oracle, layers=1, mtp_input_order="hidden_first")
    agree(load(tmp_path / "own", tmp_path), oracle)


@pytest.mark.parametrize(("family", "form", "shift"), [("qwen3", "1+w", -1.0), ("qwen3_5", "w", 1.0)])
def test_norms_may_have_the_other_form_than_the_oracles(family, form, shift, tmp_path):
    """The same module, written the other way."""
    oracle = build(family)
    oracle.target.save_pretrained(tmp_path)
    tiny.write_own(tmp_path / "own", oracle, layers=1, mtp_norm_form=form)
    edit_tensors(tmp_path / "own", lambda found: {n: t + shift if "norm" in n else t for n, t in found.items()})
    agree(load(tmp_path / "own", tmp_path), oracle)


@pytest.mark.parametrize("normalised", [True, False])
def test_the_experts_weights_may_not_add_up_to_one_as_in_the_oracle(normalised, tmp_path):
    oracle = build("qwen3_next", norm_topk_prob=normalised)
    tiny.write_target(tmp_path, oracle)
    agree(load(tmp_path), oracle)


@pytest.mark.parametrize("family", ["llama", "qwen3_5 wrapped"])
def test_a_tied_head_drafts_as_the_oracle(family, tmp_path):
    oracle = build(family, tie_word_embeddings=True)
    oracle.target.save_pretrained(tmp_path)
    tiny.write_own(tmp_path / "own", oracle, layers=1)
    agree(load(tmp_path / "own", tmp_path), oracle)


@pytest.mark.parametrize("key", ["mtp_num_hidden_layers", "num_nextn_predict_layers"])
def test_either_name_counts_the_layers_that_the_oracle_has(key, tmp_path):
    oracle = build("qwen3_5", layers=2)
    tiny.write_target(tmp_path, oracle)
    edit_config(tmp_path, **{key: 2})
    agree(load(tmp_path), oracle)


def test_flat_rope_settings_of_older_files_mean_the_same_as_the_oracles(tmp_path):
    oracle = build("qwen3_5")
    tiny.write_target(tmp_path, oracle)
    edit_config(tmp_path, rope_parameters=None, rope_theta=500.0, partial_rotary_factor=0.5)
    agree(load(tmp_path), oracle)


def test_a_quantised_targets_module_is_read_in_the_types_it_is_stored_in(tmp_path):
    """Quantisers leave the module in bf16: only what the drafter borrows has to be plain."""
    oracle = build("qwen3_5")
    with torch.no_grad():
        for parameter in oracle.module.parameters():
            parameter.copy_(parameter.bfloat16())
    oracle.target.save_pretrained(tmp_path / "plain")
    tiny.write_target(tmp_path / "quantised", oracle)
    edit_config(tmp_path / "quantised", quantization_config={"quant_method": "awq"})
    as_bf16 = {True: torch.bfloat16, False: torch.float32}
    edit_tensors(
        tmp_path / "quantised",
        lambda found: {n: t.to(as_bf16[n.startswith("mtp.")]) for n, t in found.items()},
    )
    agree(load(tmp_path / "quantised", tmp_path / "plain"), oracle)


def test_bf16_stays_close_to_the_oracle(tmp_path):
    oracle = build("qwen3_5_moe")
    tiny.write_target(tmp_path, oracle)
    drafter = MtpDrafter.load(tmp_path, borrowed(tmp_path, dtype=torch.bfloat16), draws="argmax")
    ids = tokens(120)
    close = 0
    for end in range(100, 119):
        fed = Fed(drafter, oracle, ids).feed(end)
        close += fed.draft(1).ids[0] == fed.expected(1)[0][0]
    assert close >= 15


def test_restricted_to_some_ids_the_likeliest_of_them_in_the_oracle_is_drafted(tmp_path):
    oracle = build("qwen3_5")
    tiny.write_target(tmp_path, oracle)
    kept = list(dict.fromkeys(tokens(30, seed=9)))
    (tmp_path / "ids.json").write_text(str(kept))
    drafter = load(tmp_path, draft_vocab=tmp_path / "ids.json")
    ids = tokens(80)
    for end in range(40, 60):
        fed = Fed(drafter, oracle, ids).feed(end)
        logits = oracle.draft(ids[: end + 1], fed.hidden_TH[:end], 1)[1][0]
        assert fed.draft(1).ids == (kept[int(logits[kept].argmax())],)
