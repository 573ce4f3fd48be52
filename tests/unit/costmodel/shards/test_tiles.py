"""Tiles along the sequence: how many, what they save and what they cost."""

import numpy as np
import pytest

from trainplan.costmodel.blocks.feed_forward.mlp import mlp_part
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.calibration import context_for, machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.transients import head_bytes
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
from trainplan.costmodel.shards import mlp_tiles
from trainplan.costmodel.step import price
from trainplan.planner.space import Space
from trainplan.planner.space.choices import broken_rules

H, V = 4096, 128_256
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def long_job(make_job, seq_length, runtime="deepspeed", model="llama3.1-8b", gpus=8):
    job = make_job(model, f"1x{gpus}:h100-sxm", 8, seq_length)
    return job.model_copy(update={"runtime": runtime})


def rows(job, *layouts):
    table = LayoutTable.of([Layout(**FULL, zero_stage=3, **layout) for layout in layouts])
    return price(context_of(job, machine_for(job)).with_table(table))


UNTILED = {"cp": 8}
LOSS = {"cp": 8, "tiled_loss": True}
BOTH = {"cp": 8, "tiled_loss": True, "tiled_mlp": True}


def test_an_mlp_has_tiles_of_as_many_tokens_as_the_hidden_state_is_wide(make_job):
    table = LayoutTable.of([Layout(cp=cp) for cp in (1, 2, 8)])
    assert mlp_tiles(long_job(make_job, 8 * H + 16), table).tolist() == [9, 5, 2]


def test_a_loss_has_tiles_of_one_gib_of_logits(make_job):
    table = LayoutTable.of([Layout(cp=8), Layout(micro_batch_size=3)])
    tokens = 131_072
    found = loss_tiles(long_job(make_job, tokens), table).tolist()
    assert found == [-(-(tokens // 8 * V * 4) // 2**30), -(-(3 * tokens * V * 4) // 2**30)]


def test_a_tiled_loss_holds_the_logits_of_one_tile(make_job):
    job = long_job(make_job, 1 << 19)
    priced = rows(job, UNTILED, LOSS)
    tokens, tiles = (1 << 19) / 8, 32
    whole = 14 * tokens * V + 2 * tokens * H
    layer = (12 * H + 5 * H + 8 * 14_336 + 4 * 14_336 + 2 * H) * tokens
    assert layer < whole
    moments = priced.memory.transients[0]
    assert moments[0] - moments[1] == pytest.approx(whole - layer, rel=0.02)
    assert tiles == loss_tiles(job, LayoutTable.of([Layout(cp=8)]))[0]


def test_a_layer_with_a_tiled_mlp_takes_most_in_its_norm(make_job):
    job = long_job(make_job, 1 << 19)
    priced = rows(job, LOSS, BOTH)
    tokens, width = (1 << 19) / 8, 14_336
    inside = (8 * width + 4 * width) * tokens
    norm, single, travels = 8, 3, 1
    tiled = 2 * (norm + single + travels) * H * tokens
    saved = priced.memory.transients[0, 0] - priced.memory.transients[0, 1]
    assert saved == pytest.approx(inside - tiled)


def test_tiled_mlps_run_forward_once_more(make_job):
    """All of the MLP's products, with sums of the gradients of its weights over the tiles."""
    job = long_job(make_job, 1 << 17)
    table = LayoutTable.of([Layout(**UNTILED), Layout(**UNTILED, tiled_mlp=True)])
    part = mlp_part(shapes(context_of(job, machine_for(job)).with_table(table)), 14_336, "mlp")
    forward, more = part.forward, part.backward - part.backward.times(1.0, 0)
    assert more.gemm[1] == pytest.approx(forward.gemm[0])
    tiles = (1 << 17) / 8 / H
    sums = (tiles - 1) * 3 * 2 * 3 * H * 14_336
    speed = 2 * 2**30 / elementwise_seconds(machine_for(job), np.array([2.0 * 2**30]))[0]
    assert more.elementwise[1] - forward.elementwise[0] == pytest.approx(sums / speed)
    assert part.saved_bytes.tolist() == [2 * 4 * 14_336 * (1 << 17) / 8, 0.0]


@pytest.mark.parametrize("model", ["llama3.1-8b", "llama3-70b", "qwen2.5-7b"])
@pytest.mark.parametrize("seq_length", [1 << 16, 1 << 17, 1 << 20])
def test_more_tiles_take_more_time_and_no_more_bytes(make_job, model, seq_length):
    priced = rows(
        long_job(make_job, seq_length, model=model, gpus=4),
        *({**some, "cp": 4} for some in (UNTILED, LOSS, BOTH)),
    )
    assert (np.diff(priced.step_seconds) > 0).all()
    assert (np.diff(priced.memory.used) <= 0).all()


def tilings(space):
    """(tiled_loss, tiled_mlp) of all skeletons without a pipeline."""
    one = space.stagings(1)
    return set(zip(one.tiled_loss.tolist(), one.tiled_mlp.tolist(), strict=True))


@pytest.mark.parametrize("seq_length", [2048, 1 << 17])
def test_a_runtime_without_tiles_has_none_in_its_space(make_job, seq_length):
    space = Space(context_for(long_job(make_job, seq_length, "megatron-lm")))
    assert tilings(space) == {(0, 0)}
    assert tilings(Space(context_for(long_job(make_job, seq_length)))) == {(0, 0), (1, 0), (1, 1)}


@pytest.mark.parametrize(
    ("runtime", "seq_length", "layout", "rule"),
    [
        ("megatron-lm", 1 << 17, {"tiled_loss": True}, "runtime_tiles_loss"),
        ("megatron-lm", 1 << 17, {"tiled_mlp": True}, "runtime_tiles_mlp"),
        ("deepspeed", H, {"tiled_mlp": True}, "mlp_has_tiles"),
        ("deepspeed", 2048, {"tiled_loss": True}, "loss_has_tiles"),
    ],
)
def test_what_cannot_be_tiled_is_refused_by_name(make_job, runtime, seq_length, layout, rule):
    job = long_job(make_job, seq_length, runtime)
    assert rule in broken(job, layout)
    assert rule not in broken(job, {})


def test_experts_are_not_tiled(make_job):
    job = long_job(make_job, 1 << 17, model="qwen3-30b-a3b")
    assert "mlp_is_tiled_whole" in broken(job, {"tiled_mlp": True})


def broken(job, layout):
    """Names of the rules that a layout breaks."""
    found = broken_rules(job, LayoutTable.of([Layout(**{"dp": 8, **layout})]))
    return [rule.name for rule in found[0]]


@pytest.mark.parametrize(("compiled", "each"), [(False, 14), (None, 4)])
@pytest.mark.parametrize(("stage", "summed"), [(3, 4), (0, 0)])
def test_chunks_hold_an_eighth_of_the_logits_and_sums_in_fp32(
    make_job, compiled, each, stage, summed
):
    """Sums: of hidden gradients, and where gradients are sharded of the output table's."""
    tokens = 8192
    job = long_job(make_job, tokens, "torchtitan")
    job = job.model_copy(update={"options": RuntimeOptions(compile=compiled)})
    layouts = [Layout(dp=8, zero_stage=stage, tiled_loss=one) for one in (False, True)]
    candidates = context_for(job).with_table(LayoutTable.of(layouts))
    whole, chunked = head_bytes(candidates, np.full(2, float(tokens)))
    saved = each * tokens * V * (1 - 1 / 8) - 4 * tokens * H - summed * V * H
    assert whole - chunked == pytest.approx(saved, rel=1e-9)


@pytest.mark.parametrize(("tp", "each"), [(1, 14), (2, 18)])
def test_a_loss_of_torch_on_a_shared_vocabulary_has_four_fp32_tensors_at_once(make_job, tp, each):
    tokens = 8192
    job = long_job(make_job, tokens, "torchtitan")
    job = job.model_copy(update={"options": RuntimeOptions(compile=False)})
    table = LayoutTable.of([Layout(tp=tp, dp=8 // tp, zero_stage=3)])
    found = head_bytes(context_for(job).with_table(table), np.array([float(tokens)]))
    assert found == pytest.approx(each * tokens * V / tp + 2 * tokens * H, rel=1e-9)


def test_liger_under_accelerate_holds_the_whole_gradient_of_the_table(make_job):
    """Logits of a power of two of tokens, in 16 bits, and gradients of hidden states and table."""
    tokens = 8192
    job = with_liger(long_job(make_job, tokens, "accelerate"), "0.6")
    table = LayoutTable.of([Layout(dp=8, zero_stage=3, tiled_loss=True)])
    found = head_bytes(context_for(job).with_table(table), np.array([float(tokens)]))
    assert found == pytest.approx(2 * 256 * V + 2 * (2 * tokens * H) + 2 * V * H, rel=1e-9)


def test_chunks_add_their_gradients_of_the_table_in_fp32(make_job):
    job = long_job(make_job, 8192, "torchtitan")
    layouts = [Layout(dp=8, zero_stage=3, tiled_loss=one) for one in (False, True)]
    whole, chunked = price(context_for(job).with_table(LayoutTable.of(layouts))).step_seconds
    added = elementwise_seconds(machine_for(job), np.array([7 * (2 + 2 * 4) * V * H]))[0]
    assert chunked - whole == pytest.approx(added, rel=0.03)


def test_liger_has_tiles_of_a_power_of_two(make_job):
    """Of 131072 tokens, of which each has 32 times as many logits as hidden states."""
    job = with_liger(long_job(make_job, 1 << 20), "0.6")
    table = LayoutTable.of([Layout(cp=8), Layout(cp=4)])
    assert loss_tiles(job, table).tolist() == [32, 32]
    uneven = with_liger(long_job(make_job, 8 * 100_000), "0.6")
    assert loss_tiles(uneven, table).tolist() == [-(-100_000 // 4096), -(-200_000 // 8192)]


def test_kernels_of_liger_keep_less_and_take_no_more_time(make_job):
    job = long_job(make_job, 1 << 19)
    plain, fused = rows(job, UNTILED), rows(with_liger(job, "0.6"), UNTILED)
    tokens, width = (1 << 19) / 8, 14_336
    kept = [one.gathered.layers[0].saved_bytes[0] for one in (plain, fused)]
    norms, activation = 2 * 2 * H, 2 * width
    assert kept[0] - kept[1] == pytest.approx((norms + activation) * tokens)
    assert fused.step_seconds[0] < plain.step_seconds[0]


def with_liger(job, version):
    return job.model_copy(update={"options": RuntimeOptions(liger=version)})


@pytest.mark.parametrize("tokens", [1 << 19, (1 << 19) - 16])
def test_old_liger_indexes_fewer_than_two_to_the_31_elements(make_job, tokens):
    """2^31 elements are 524,288 tokens of 4096."""
    old, new = (with_liger(long_job(make_job, 8 * tokens), v) for v in ("0.5", "0.6"))
    layout = {"cp": 8, "dp": 1}
    assert ("kernel_index" in broken(old, layout)) == (tokens == 1 << 19)
    assert "kernel_index" not in broken(new, layout)
    assert "kernel_index" in broken(old, {"cp": 4, "dp": 2})


def test_runtimes_without_kernels_of_liger_refuse_them(make_job):
    job = with_liger(long_job(make_job, 4096, "megatron-lm"), "0.6")
    assert "runtime_runs_liger" in broken(job, {})


@pytest.mark.parametrize("liger", [None, "0.6"])
def test_layouts_without_tiles_cost_the_same_beside_others_with_them(make_job, liger):
    job = with_liger(long_job(make_job, 1 << 17), liger)
    alone, alongside = rows(job, UNTILED), rows(job, UNTILED, LOSS, BOTH)
    assert alone.step_seconds[0] == alongside.step_seconds[0]
    assert alone.memory.used[0] == alongside.memory.used[0]
    assert len({*alongside.step_seconds}) == len({*alongside.memory.used}) == 3
