"""The same weights in every format give the reference's drafts."""

import json

import pytest
import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.cache_utils import DFlashCache

from services.drafter.checkpoints.formats import read_recipe
from services.drafter.checkpoints.tensors import Plan
from services.drafter.dflash import MODES, DFlashDrafter
from services.drafter.models.dflash import DFlashBody
from services.engine.weights.checkpoint import Checkpoint
from tests.drafter import dflash_oracle as tiny
from tests.drafter.dflash_oracle import HIDDEN, VOCAB, ask, config, feed_in_pieces, opened, random_taps, tensors, write

TAPS = random_taps(21)
ANCHOR = 17
WINDOWS = [7, 7, None]


def drafts_of(folder, oracle, **borrowed):
    """Of the drafter in `folder / "drafter"`."""
    target = tiny.borrow(tiny.write_target(folder / "target", oracle), **borrowed)
    drafter = DFlashDrafter.load(MODES[oracle.version], folder / "drafter", target, draws="argmax")
    context = opened(drafter)
    feed_in_pieces(drafter, context, TAPS, ANCHOR, [21])
    return list(ask(drafter, context)[0].ids)


def is_the_reference(folder, oracle):
    assert drafts_of(folder, oracle) == oracle.drafts(TAPS, ANCHOR)[0]


# z-lab's own forms.


@pytest.mark.parametrize("version", [1, 2])
def test_oracle_special_keys_beside_or_inside_dflash_config(tmp_path, version):
    oracle = tiny.tiny(version)
    values = config(oracle)
    special = values.pop("dflash_config")
    inside = {"mask_token_id": special["mask_token_id"]}
    write(tmp_path / "drafter", special | values | {"dflash_config": inside}, tensors(oracle))
    is_the_reference(tmp_path, oracle)


def test_oracle_inside_wins_over_beside(tmp_path):
    oracle = tiny.tiny(1)
    tiny.write_drafter(tmp_path / "drafter", oracle, block_size=3)
    is_the_reference(tmp_path, oracle)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_oracle_taps_that_are_not_listed_lie_evenly(tmp_path, layers):
    from dflash.model import build_target_layer_ids

    expected = build_target_layer_ids(tiny.TARGET_LAYERS, layers)
    oracle = tiny.tiny(1, num_hidden_layers=layers, special={"target_layer_ids": expected})
    special = {key: value for key, value in oracle.special.items() if key != "target_layer_ids"}
    tiny.write_drafter(tmp_path / "drafter", oracle, dflash_config=special)
    assert read_recipe(tmp_path / "drafter").taps == tuple(expected)


def test_taps_keep_the_order_of_the_config(tmp_path):
    """The feed is ascending; what the first columns of fc read is the first of the list."""
    oracle = tiny.tiny(1, special={"target_layer_ids": [6, 1, 3]})
    drafter = tiny.load(tmp_path, oracle)
    assert drafter.description.tap_layers == (1, 3, 6)
    context = opened(drafter)
    feed_in_pieces(drafter, context, TAPS, ANCHOR, [21])
    assert list(ask(drafter, context)[0].ids) == oracle.drafts(TAPS[:, [2, 0, 1]], ANCHOR)[0]


@pytest.mark.parametrize("form", ["rope_theta", "rope_parameters"])
def test_oracle_both_forms_of_rotary_settings(tmp_path, form):
    oracle = tiny.tiny(1)
    values = config(oracle)
    for key in ("rope_theta", "rope_parameters", "rope_scaling"):
        values.pop(key, None)
    given = {"rope_theta": 3e4} if form == "rope_theta" else {form: {"rope_theta": 3e4, "rope_type": "default"}}
    write(tmp_path / "drafter", values | given, tensors(oracle))
    is_the_reference(tmp_path, oracle)


def test_listed_windows_count_whatever_use_sliding_window_says(tmp_path):
    oracle = tiny.tiny(1, windows=WINDOWS)
    tiny.write_drafter(tmp_path / "drafter", oracle, use_sliding_window=False, max_window_layers=28)
    is_the_reference(tmp_path, oracle)


@pytest.mark.parametrize(
    ("given", "windows"),
    [
        ({}, [None, None, None]),
        ({"sliding_window": 9}, [None, None, None]),
        ({"sliding_window": 9, "use_sliding_window": True}, [None, None, None]),
        ({"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 1}, [None, 9, 9]),
        ({"sliding_window": 9, "use_sliding_window": False, "max_window_layers": 1}, [None, None, None]),
    ],
)
def test_kinds_that_are_not_listed_are_derived_as_qwen3_does(tmp_path, given, windows):
    oracle = tiny.tiny(1)
    unlisted = {"layer_types": None, "sliding_window": None, "use_sliding_window": None}
    tiny.write_drafter(tmp_path / "drafter", oracle, **unlisted | given)
    reach = read_recipe(tmp_path / "drafter").reach
    assert [each.window for each in reach] == windows
    assert [each.causal for each in reach] == [window is not None for window in windows]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("dressed", [{"prefix": "model."}, {"codebook": "codebook.weight"}, {}], ids=str)
def test_oracle_names_with_and_without_what_some_writers_add(tmp_path, version, dressed):
    oracle = tiny.tiny(version)
    prefix, codebook = dressed.get("prefix", ""), dressed.get("codebook", "codebook")
    named = {prefix + name.replace("codebook", codebook): value for name, value in tensors(oracle).items()}
    write(tmp_path / "drafter", config(oracle), named)
    is_the_reference(tmp_path, oracle)


def test_oracle_shards(tmp_path):
    oracle = tiny.tiny(1)
    folder, whole = tmp_path / "drafter", tensors(oracle)
    write(folder, config(oracle), whole)
    (folder / "model.safetensors").unlink()
    homes = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(sorted(whole))}
    for shard in set(homes.values()):
        tiny.save_file({name: whole[name].clone() for name in whole if homes[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    is_the_reference(tmp_path, oracle)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("own", "targets"), [(VOCAB + 27, VOCAB), (VOCAB, VOCAB + 27), (VOCAB, VOCAB)])
def test_oracle_padding_of_drafter_and_target_may_differ(tmp_path, version, own, targets):
    """Both know the tokenizer's 90 ids; what either has beyond is never drafted, but may be the mask."""
    oracle = tiny.tiny(version, vocab_size=own, special={"mask_token_id": 97})
    generator = torch.Generator().manual_seed(11)
    oracle.embedding_VH = torch.randn(targets, HIDDEN, generator=generator)
    oracle.head = torch.nn.Linear(HIDDEN, targets, bias=False)
    short = torch.randn(targets, HIDDEN, generator=generator)
    short[90:] = 0  # for the reference, which would draft them
    with torch.no_grad():
        oracle.head.weight.copy_(short)
    tiny.write_drafter(tmp_path / "drafter", oracle)
    expected = oracle.drafts(TAPS, ANCHOR)[0]
    oracle.head.weight.data[90:] = 99.0
    assert max(expected) < 90
    assert drafts_of(tmp_path, oracle, vocab_size=90) == expected


# The speculators library's form.


def speculators_config(oracle, **changed):
    layers = {key: value for key, value in config(oracle).items() if key not in ("dflash_config", "num_target_layers")}
    special = dict(oracle.special)
    taps = special.pop("target_layer_ids")
    return special | {
        "speculators_model_type": MODES[oracle.version],
        "architectures": ["DFlashSpeculator"],
        "aux_hidden_state_layer_ids": [tap + 1 for tap in taps],
        "draft_vocab_size": VOCAB,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
        "target_hidden_size": HIDDEN,
        "transformer_layer_config": layers | {"model_type": "llama", "vocab_size": VOCAB},
        **changed,
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("non_causal", [True, False, None])
def test_oracle_speculators_taps_count_from_the_embedding_and_windows_say_their_causality(
    tmp_path, version, non_causal
):
    """Absent, the flag is true for the second version and false for the first; full layers are never causal."""
    causal = not (version == 2 if non_causal is None else non_causal)
    oracle = tiny.tiny(version, windows=WINDOWS, is_causal=None if causal else False)
    values = speculators_config(oracle, sliding_window_non_causal=non_causal)
    write(tmp_path / "drafter", values, tensors(oracle))
    is_the_reference(tmp_path, oracle)


def reduced(oracle, ids, folder, **changed):
    """`ids`: the target ids that the drafter's own head has, which is the target's but for its noise."""
    own = oracle.head.weight.detach()[ids] + torch.randn(len(ids), HIDDEN)
    chosen = torch.zeros(VOCAB, dtype=torch.bool)
    chosen[ids] = True
    extra = {"lm_head.weight": own, "d2t": torch.tensor(ids) - torch.arange(len(ids)), "t2d": chosen}
    extra |= changed.pop("tensors", {})
    named = {name: value for name, value in (tensors(oracle) | extra).items() if value is not None}
    write(folder, speculators_config(oracle, draft_vocab_size=len(ids), **changed), named)
    return own


IDS = [4, 5, 11, 30, 52, 53, 54, 77, 90, 98]


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_oracle_a_reduced_vocabulary_keeps_its_own_head_and_is_mapped_by_offsets(tmp_path, order):
    ids = IDS if order == "ascending" else [IDS[index] for index in (3, 0, 9, 1, 7, 2, 8, 4, 6, 5)]
    oracle = tiny.tiny(1)
    own = reduced(oracle, ids, tmp_path / "drafter")
    hidden = oracle.hidden(TAPS, ANCHOR)[1:]
    assert drafts_of(tmp_path, oracle) == [ids[row] for row in (hidden @ own.T).argmax(1)]
    assert max(torch.tensor(ids) - torch.arange(len(ids))) > len(ids), "the offsets are no ids of the drafter"


def test_oracle_an_embedding_of_its_own_is_used(tmp_path):
    oracle = tiny.tiny(1)
    other = torch.randn(VOCAB, HIDDEN)
    own = reduced(oracle, IDS, tmp_path / "drafter", tensors={"embed_tokens.weight": other, "t2d": None})
    found = drafts_of(tmp_path, oracle)
    oracle.embedding_VH = other
    hidden = oracle.hidden(TAPS, ANCHOR)[1:]
    assert found == [IDS[row] for row in (hidden @ own.T).argmax(1)]


def test_rows_for_padding_of_the_target_are_never_drafted(tmp_path):
    oracle = tiny.tiny(1, special={"mask_token_id": 3})
    own = reduced(oracle, IDS, tmp_path / "drafter")
    allowed = torch.tensor([id < 60 for id in IDS])
    logits = (oracle.hidden(TAPS, ANCHOR)[1:] @ own.T).masked_fill(~allowed, -torch.inf)
    assert drafts_of(tmp_path, oracle, vocab_size=60) == [IDS[row] for row in logits.argmax(1)]


# transformers' own form.


def test_oracle_names_of_transformers_own_form(tmp_path):
    oracle = tiny.tiny(1, windows=WINDOWS, is_causal=False)
    values = config(oracle) | oracle.special | {"model_type": "muse_glimmer_assistant"}
    for key in ("dflash_config", "architectures", "vocab_size", "num_target_layers", "is_causal"):
        values.pop(key)
    renamed = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    write(tmp_path / "drafter", values, {renamed.get(name, name): value for name, value in tensors(oracle).items()})
    is_the_reference(tmp_path, oracle)


def test_oracle_transformers_own_model(tmp_path):
    """Its masks let a window reach one position further than z-lab's; the drafter is given the wider one here."""
    values = {key: value for key, value in tiny.BODY.items() if key not in ("vocab_size", "rope_theta")}
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    rope = {"rope_theta": 3e4, "rope_type": "default"}
    special = tiny.SPECIAL | {"layer_types": kinds, "sliding_window": 9, "rope_parameters": rope}
    model = tiny.noise(MuseGlimmerAssistantModel(MuseGlimmerAssistantConfig(**values, **special)))
    write(tmp_path, model.config.to_dict() | {"sliding_window": 10}, model.state_dict())
    checkpoint = Checkpoint.open(tmp_path)
    body = DFlashBody(Plan.of(read_recipe(tmp_path), checkpoint), checkpoint, torch.float32)
    memory, x_BH = body.memory(), torch.randn(6, HIDDEN)
    body.absorb(TAPS.flatten(1), [memory], [21])
    cache = DFlashCache(config=model.config)
    cache.set_previous_accepted_tokens(21)  # how many features come with this block
    with torch.inference_mode():
        expected = model(noise_embeds=x_BH[None], context_hidden_states=TAPS.flatten(1)[None], cache=cache)
    torch.testing.assert_close(body(x_BH, [memory]), expected.last_hidden_state[0], rtol=1e-5, atol=1e-5)
