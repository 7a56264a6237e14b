"""The probe finds how to call operators safely, notices when nothing is safe, and its findings are kept and named.

Fickle operators stand for kernels of machines we do not have: they sum in another order by the number of rows.
"""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from services.engine.cache.slots import Layout
from services.engine.engine import Engine
from services.engine.numerics.attention import Lanes, attention_plan, cancelling_scores, cancelling_values, safe, sizes
from services.engine.numerics.check import invariant
from services.engine.numerics.probe import search, specimen
from services.engine.ops import attention
from services.engine.ops.attention import Heads
from services.engine.ops.linear import Linear, can_pack
from services.engine.ops.plan import AttentionPlan, Operator, RowPlan, Table
from services.engine.ops.pointwise import HeadNorm
from tests.engine.tiny import feed, tokens, write

DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])


def in_halves(op, x_TI):
    """The same sums in another order: half of the columns first, drawn, so that no kernel's own order is this one."""
    half_TI = x_TI.clone()
    half_TI[:, torch.randperm(x_TI.shape[1], generator=torch.Generator().manual_seed(0))[::2]] = 0
    return op(half_TI) + op(x_TI - half_TI)


def fickle(op, sees, x_TI):
    return in_halves(op, x_TI) if sees(x_TI) else op(x_TI)


def searched(dtype, sees):
    """The plan for a linear that changes its order when `sees` says so of its rows."""
    op, x_SI = specimen(Operator("linear", 72, 40), dtype, packed=can_pack(dtype))
    # One call for each row keeps the operator under it constant.
    return search(partial(fickle, lambda x_TI: torch.cat([op(row_I.expand(2, -1))[:1] for row_I in x_TI]), sees), x_SI)


@DTYPES
def test_the_probe_pads_a_lone_row_where_it_is_summed_otherwise(dtype):
    assert searched(dtype, lambda x_TI: len(x_TI) == 1) == RowPlan(multiple=2, most=64)


@DTYPES
def test_the_probe_cuts_calls_before_another_kernel_takes_over(dtype):
    assert searched(dtype, lambda x_TI: len(x_TI) > 32) == RowPlan(multiple=1, most=32)


@DTYPES
def test_the_probe_finds_a_multiple_and_a_cut_together(dtype):
    assert searched(dtype, lambda x_TI: len(x_TI) % 8 or len(x_TI) > 48) == RowPlan(multiple=8, most=48)


@DTYPES
def test_one_deviating_count_ends_the_reach(dtype):
    assert searched(dtype, lambda x_TI: len(x_TI) == 29) == RowPlan(multiple=1, most=28)


@DTYPES
def test_the_probe_sees_rows_that_depend_on_their_place(dtype):
    """Only the last row of a call of seven differs."""
    op, x_SI = specimen(Operator("linear", 72, 40), dtype, packed=False)

    def last_row_otherwise(x_TI):
        y_TO = torch.cat([op(row_I.expand(2, -1))[:1] for row_I in x_TI])
        if len(x_TI) == 7:
            y_TO[-1:] = in_halves(op, x_TI[-1:].expand(2, -1))[:1]
        return y_TO

    assert search(last_row_otherwise, x_SI) == RowPlan(multiple=2, most=64)


def test_the_probe_says_when_nothing_is_safe():
    op, x_SI = specimen(Operator("linear", 72, 40), torch.float32, packed=False)
    calls = iter(range(10**6))
    assert search(lambda x_TI: op(x_TI) + next(calls), x_SI) is None


@DTYPES
def test_the_attention_probe_sees_queries_and_keys_without_padding(dtype):
    """Keys cut at any place are read in blocks of any size; in at least one of the two formats that shows."""
    heads = Heads(query=9, kv=3, dim=64)
    trials = [Lanes(heads, make(heads, dtype)) for make in (cancelling_values, cancelling_scores)]
    assert not all(safe(AttentionPlan(queries=1, keys=1), lanes) for lanes in trials)


def fickle_attention(sees):
    """Attention that goes through the keys from the last to the first when `sees` says so of their number."""
    plain = attention.scaled_dot_product_attention

    def op(q, k, v, attn_mask, scale):
        if sees(k.shape[2]):
            k, v, attn_mask = k.flip(2), v.flip(2), attn_mask.flip(3)
        return plain(q, k, v, attn_mask=attn_mask, scale=scale)

    return op


@pytest.mark.parametrize("fickle_at", [192, 512 + 128])
def test_the_attention_probe_pads_keys_to_no_size_at_which_sums_go_another_way(fickle_at, monkeypatch):
    heads = Heads(query=4, kv=2, dim=16)
    before = attention_plan(heads, torch.float32)
    assert fickle_at % 512 in before.over
    monkeypatch.setattr(attention, "scaled_dot_product_attention", fickle_attention(lambda keys: keys == fickle_at))
    expected = tuple(size for size in before.over if size != fickle_at % 512)
    assert attention_plan(heads, torch.float32) == replace(before, over=expected)


@DTYPES
def test_no_size_is_found_where_all_sums_over_part_of_a_multiple_go_another_way(dtype, monkeypatch):
    heads = Heads(query=9, kv=3, dim=64)
    monkeypatch.setattr(attention, "scaled_dot_product_attention", fickle_attention(lambda keys: keys % 512))
    found = [
        sizes(AttentionPlan(), Lanes(heads, make(heads, dtype))) for make in (cancelling_values, cancelling_scores)
    ]
    assert not set.intersection(*found)


def test_keys_are_padded_to_the_next_size_there_is():
    plan = AttentionPlan(keys=512, over=(64, 192, 384))
    wanted = {1: 64, 64: 64, 65: 192, 192: 192, 193: 384, 385: 512, 512: 512, 513: 576, 512 + 192: 704, 1000: 1024}
    assert {count: plan.padded_keys(count) for count in wanted} == wanted
    assert replace(plan, over=()).padded_keys(1) == 512


@pytest.mark.parametrize("over", [(0,), (64, 64), (192, 64), (512,), (64, 1024), ("64",)])
def test_a_table_with_sizes_that_do_not_ascend_is_refused(over):
    with pytest.raises((ValueError, TypeError)):
        Table({}, AttentionPlan(over=over)).check([])


@pytest.fixture
def folder(tmp_path):
    write(tmp_path)
    return tmp_path


load = partial(Engine.load, dtype=torch.float32, threads=1, cache_rows=64)


def check(engine):
    """Once more, what `load` does at its end."""
    layout = Layout(layers=3, kv_heads=2, head_dim=16, dtype=torch.float32, page=512)
    return invariant(engine.forward, layout, engine.vocab_size, engine.context)


def test_the_whole_model_is_found_out_when_padding_is_removed(folder, monkeypatch):
    """A linear that sums a lone row otherwise is safe under the plan the probe finds, and unsafe without."""
    plain = Linear._call

    def lone_row_otherwise(self, x_TI):
        return fickle(partial(plain, self), lambda x_TI: len(x_TI) == 1, x_TI)

    monkeypatch.setattr("services.engine.numerics.probe.can_pack", lambda dtype: False)
    monkeypatch.setattr(Linear, "_call", lone_row_otherwise)
    engine = load(folder)
    assert engine.numerics.exact
    assert engine._multiple > 1
    engine._multiple = 1
    assert not check(engine)


def test_a_norm_of_heads_has_a_plan_of_its_own(tmp_path, monkeypatch):
    """One that rounds otherwise from 20 rows on is cut, and found out when it is not."""
    write(tmp_path, family="qwen3", head_dim=16)
    plain = HeadNorm._op
    monkeypatch.setattr(HeadNorm, "_op", lambda self, x_TND: plain(self, x_TND) * (1 + 1e-6 * (len(x_TND) > 19)))
    engine = load(tmp_path)
    assert engine.numerics.exact
    assert engine.numerics.table.rows["head_norm 96x16"].most == 19
    assert check(engine)
    monkeypatch.setattr(RowPlan, "__call__", lambda self, op, x_TI: op(x_TI))
    assert not check(engine)


def test_the_whole_model_is_found_out_when_calls_are_not_cut(folder, monkeypatch):
    """A linear that takes another order from 20 rows on."""
    for kind in ("_call", "_call_packed"):
        plain = getattr(Linear, kind)
        monkeypatch.setattr(
            Linear,
            kind,
            lambda self, x_TI, plain=plain: fickle(partial(plain, self), lambda x_TI: len(x_TI) > 19, x_TI),
        )
    engine = load(folder)
    assert engine.numerics.exact
    assert check(engine)
    monkeypatch.setattr(RowPlan, "__call__", lambda self, op, x_TI: op(x_TI))
    assert not check(engine)


def test_an_engine_without_a_safe_plan_runs_and_says_that_it_is_not_exact(folder, monkeypatch):
    calls = iter(range(10**6))
    for kind in ("_call", "_call_packed"):
        plain = getattr(Linear, kind)
        monkeypatch.setattr(Linear, kind, lambda self, x_TI, plain=plain: plain(self, x_TI) * (1 + 1e-6 * next(calls)))
    engine = load(folder)
    assert (engine.numerics.exact, engine.numerics.reason) == (False, "no_row_invariant_plan")
    assert feed(engine, engine.open(5), tokens(5)).logits_RV.shape == (5, engine.vocab_size)
    assert not list(folder.glob(".tandem/*"))


def test_a_table_is_kept_beside_the_model_and_read_again(folder):
    first = load(folder)
    (path,) = folder.glob(".tandem/*.json")
    kept = json.loads(path.read_text())
    assert Table.from_json(kept) == first.numerics.table
    kept["attention"]["queries"] = 64
    path.write_text(json.dumps(kept))
    second = load(folder)
    assert second.numerics.table.attention.queries == 64
    assert second.numerics.fingerprint != first.numerics.fingerprint


def test_a_table_that_cannot_be_used_is_measured_again(folder):
    fingerprint = load(folder).numerics.fingerprint
    (path,) = folder.glob(".tandem/*.json")
    for text in ("", "{", "[]", '{"rows": {}, "attention": {}}', path.read_text().replace("64", "0"), "[" * 100_000):
        path.write_text(text)
        assert load(folder).numerics.fingerprint == fingerprint
        assert json.loads(path.read_text())["rows"]


def test_a_folder_that_cannot_be_written_keeps_its_table_in_the_cache(folder, tmp_path_factory):
    (folder / ".tandem").write_text("in the way")
    cache = tmp_path_factory.mktemp("cache")
    load(folder, cache=cache)
    assert len(list(cache.glob("numerics/*.json"))) == 1
    assert load(folder).numerics == load(folder, cache=cache).numerics


def test_the_fingerprint_names_everything_that_decides_bits(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, rms_norm_eps=2e-5)
    engines = [
        load(folder),
        load(folder, dtype=torch.bfloat16),
        load(folder, vocab_size=100),
        load(other),
    ]
    assert len({engine.numerics.fingerprint for engine in engines}) == len(engines)
    assert engines[0].weights_hash == engines[1].weights_hash
    assert load(folder).numerics.fingerprint == engines[0].numerics.fingerprint


def test_an_unpacked_linear_computes_the_same_to_rounding(folder, monkeypatch):
    ids = tokens(20)
    packed = load(folder)
    monkeypatch.setattr("services.engine.numerics.probe.can_pack", lambda dtype: False)
    for path in folder.glob(".tandem/*"):
        path.unlink()
    plain = load(folder)
    assert plain.numerics.exact
    assert not any(plan.packed for plan in plain.numerics.table.rows.values())
    rows = [feed(engine, engine.open(20), ids).logits_RV for engine in (packed, plain)]
    torch.testing.assert_close(*rows, rtol=1e-4, atol=1e-4)


def test_a_plan_never_calls_with_more_rows_or_another_multiple():
    plan, counts = RowPlan(multiple=4, most=12), []
    x_TI = torch.randn(32, 3)
    assert torch.equal(plan(lambda tile_TI: counts.append(len(tile_TI)) or tile_TI, x_TI), x_TI)
    assert counts == [12, 12, 8]
    assert replace(plan, most=32)(lambda tile_TI: tile_TI, x_TI) is x_TI
