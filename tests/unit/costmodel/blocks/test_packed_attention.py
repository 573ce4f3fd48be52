"""The attention core of packed rows against rows of one sequence."""

import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.attention.packed import packed_rows, waiting_columns, waits
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import LengthSpec, Lognormal, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.model.flops import model_flop_per_step

HALVES = LengthSpec(counts=((2048, 1),))
WIDE = LengthSpec(lognormal=Lognormal(mean=1024, sigma=1.2))


def candidates(job, *layouts):
    return context_of(job, machine_of(job.cluster, "bf16")).with_table(LayoutTable.of(layouts))


def packed(job, lengths, packing="greedy"):
    stated = {**dict(job.training), "lengths": lengths, "packing": packing}
    return job.model_copy(update={"training": TrainingSpec.model_validate(stated)})


def layer(job, layout):
    """Forward and backward of the decoder layer."""
    block = blocks(candidates(job, layout)).layers[0]
    return block.forward, block.backward


@pytest.mark.parametrize("window", [None, 512])
def test_two_halves_in_a_row_cost_what_two_rows_of_half_the_length_cost(make_job, window):
    shape = {"sliding_window": window, "num_sliding_window_layers": 3 if window else 0}
    whole, half = (make_job("small-dense", "1x8:h100-sxm", 64, s) for s in (4096, 2048))
    model = whole.model.model_copy(update=shape)
    whole, half = (job.model_copy(update={"model": model}) for job in (whole, half))
    rows = layer(packed(whole, HALVES), Layout(dp=8))
    apart = layer(half, Layout(dp=8, micro_batch_size=2))
    for one, other in zip(rows, apart, strict=True):
        assert one.attention == pytest.approx(other.attention, rel=1e-12)
        assert one.gemm == pytest.approx(other.gemm, rel=1e-12)


def test_model_flops_count_the_tokens_of_sequences_and_their_own_attention(make_job):
    whole, half = (make_job("small-dense", "1x8:h100-sxm", 64, s) for s in (4096, 2048))
    twice = 2 * model_flop_per_step(half)
    assert model_flop_per_step(packed(whole, HALVES)) == pytest.approx(twice)
    assert model_flop_per_step(packed(whole, HALVES, "none")) == pytest.approx(twice / 2)


def test_the_core_of_ranks_that_wait_has_the_squares_of_the_heaviest(make_job):
    job = packed(make_job("small-dense", "1x8:h100-sxm", 64, 4096), WIDE)
    alone, eight = Layout(dp=1, tp=8), Layout(dp=8)
    machine = machine_of(job.cluster, "bf16")
    wait = float(waits(candidates(job, eight))[0])
    assert wait > 1.1
    assert waits(candidates(job, alone))[0] == pytest.approx(1.0, rel=1e-3)
    fixed, s_half = machine.constants.attention_fixed_seconds, machine.attention_half_length
    length = packed_rows(candidates(job, eight)).kernel_length
    mean = packed(make_job("small-dense", "1x8:h100-sxm", 8, 4096), WIDE)
    lonely = mean.model_copy(update={"cluster": make_job("small-dense", "1x1:h100-sxm", 8).cluster})
    one = layer(lonely, Layout())[0].attention - fixed
    heavy = layer(job, eight)[0].attention - fixed
    assert heavy / one == pytest.approx((wait * length + s_half) / (length + s_half), rel=0.02)


@pytest.mark.parametrize(
    ("layout", "meets"),
    [
        ({"dp": 8}, 1),
        ({"dp": 8, "zero_stage": 3}, 8),
        ({"dp": 8, "ep": 4}, 4),
        ({"dp": 4, "tp": 2, "ep": 4}, 2),
        ({"dp": 2, "tp": 4, "ep": 4}, 1),
    ],
)
def test_ranks_meet_in_layers_under_zero_3_and_inside_expert_groups(make_job, layout, meets):
    job = packed(make_job("small-moe", "1x8:h100-sxm", 64, 4096), WIDE)
    assert waiting_columns(candidates(job, Layout(**layout)))[2].tolist() == [meets]


def test_nobody_waits_where_rows_are_padded_or_the_core_is_not_fused(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 64, 4096)
    unfused = packed(job, WIDE).model_copy(update={"options": RuntimeOptions(attention="unfused")})
    for one in (job, packed(job, WIDE, "none"), unfused):
        assert packed_rows(candidates(one, Layout(dp=8))) is None
        assert waiting_columns(candidates(one, Layout(dp=8))) == ()
