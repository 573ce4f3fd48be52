"""Copies of gradients around DeepSpeed's optimizer step, by hand."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import block_params
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import explicit, price


@pytest.fixture(scope="module")
def given(make_job):
    def candidates(precision, layout, runtime="megatron-deepspeed", gpus="1x8", **options):
        job = make_job("gpt2", f"{gpus}:h100-sxm", seq_length=1024, global_batch_size=64)
        training = job.training.model_copy(update={"precision": precision})
        update = {"runtime": runtime, "training": training, "options": RuntimeOptions(**options)}
        job = job.model_copy(update=update)
        machine = machine_of(job.cluster, precision)
        return Candidates(job, machine, traits_of(job), LayoutTable.of([layout]))

    return candidates


def memory_of(candidates):
    return price(candidates, merged=False).memory


def params_of(candidates):
    """Of the token table with its positions, and of all that the only pipeline rank holds."""
    params = block_params(candidates.job, candidates.table)
    layers = candidates.job.model.num_hidden_layers * params.layers[0][0]
    return params.embedding[0], layers + params.embedding[0] + params.head[0]


def test_bf16_gradients_of_a_micro_batch_wait_beside_their_fp32_sums(given):
    """DeepSpeed v0.6.2 `runtime/bf16_optimizer.py`: 2 bytes beside 4; fp16 has no other sums."""
    layout = Layout(dp=8, zero_stage=1)
    sums = given("bf16", layout, gradient_dtype="fp32")
    total = params_of(sums)[1]
    assert memory_of(sums).gradients[0, 0] == pytest.approx(6 * total)
    assert memory_of(given("fp16", layout)).gradients[0, 0] == pytest.approx(2 * total)
    other = given("bf16", layout, runtime="megatron-lm")
    assert memory_of(other).gradients[0, 0] == pytest.approx(4 * params_of(other)[1])


def test_under_a_pipeline_bf16_is_summed_in_fp32_unless_it_is_alone(given):
    for precision, width in (("bf16", 6), ("fp16", 2)):
        piped = memory_of(given(precision, Layout(pp=2, dp=4, zero_stage=1)))
        assert piped.gradients == pytest.approx(width / 2 * piped.weights)
    alone = memory_of(given("bf16", Layout(dp=8, zero_stage=1)))
    assert alone.gradients == pytest.approx(alone.weights)


def test_fp16_copies_the_largest_gradient_of_a_shard_in_fp64_and_the_one_of_the_table(given):
    """A shard of 8 is smaller than the table, so it is what there is; 8 bytes beat 6."""
    candidates = given("fp16", Layout(dp=8, zero_stage=1))
    table, total = params_of(candidates)
    assert total / 8 < table
    assert memory_of(candidates).cached[0, 0] == pytest.approx(8 * total / 8 + 2 * table)


def test_of_a_large_shard_its_gradients_end_to_end_are_more_than_the_norm(given):
    candidates = given("fp16", Layout(dp=1, zero_stage=1))
    table, total = params_of(candidates)
    assert 6 * total > 8 * table
    assert memory_of(candidates).cached[0, 0] == pytest.approx(6 * total + 2 * table)


def test_without_shards_all_gradients_are_copied_twice_in_fp32(given):
    candidates = given("fp16", Layout(dp=8, zero_stage=0))
    table, total = params_of(candidates)
    assert memory_of(candidates).cached[0, 0] == pytest.approx(8 * total + 2 * table)


def test_beside_fp32_sums_one_gradient_at_a_time_is_widened(given):
    candidates = given("bf16", Layout(dp=8, zero_stage=1), gradient_dtype="fp32")
    assert memory_of(candidates).cached[0, 0] == pytest.approx(4 * params_of(candidates)[0])


def test_fp32_gradients_are_laid_end_to_end_to_be_summed(given):
    candidates = given("tf32", Layout(dp=8, zero_stage=0))
    assert memory_of(candidates).cached[0, 0] == pytest.approx(4 * params_of(candidates)[1])


@pytest.mark.parametrize(
    ("runtime", "stage", "offloaded"),
    [("megatron-lm", 1, 0.0), ("megatron-deepspeed", 3, 0.0), ("deepspeed", 2, 1.0)],
)
def test_others_zero_3_and_offloaded_states_copy_nothing_for_the_step(
    given, runtime, stage, offloaded
):
    offload = OffloadSpec(optimizer=offloaded)
    layout = Layout(dp=8, zero_stage=stage, offload=offload)
    candidates = given("bf16", layout, runtime=runtime)
    assert not np.any(memory_of(candidates).cached)


def test_what_the_allocator_would_give_back_decides_nothing_about_what_fits(given):
    candidates = given("fp16", Layout(dp=8, zero_stage=1))
    (estimate,) = explicit(candidates)
    (rank,) = estimate.memory.pipeline_ranks
    assert rank.cached_bytes > 1e8
    assert estimate.memory.peak_reserved_bytes == pytest.approx(rank.total_bytes)
    needed = rank.allocated_bytes + rank.overheads_bytes
    assert rank.total_bytes == pytest.approx(needed)


@pytest.mark.parametrize(
    ("recompute", "attention", "share"),
    [("full", "unfused", 0.065), ("full", "flash", 0.0), ("none", "unfused", 0.0)],
)
def test_scores_that_run_again_leave_pieces_that_nothing_fits(given, recompute, attention, share):
    """Megatron of 2021 copies nothing in fp32 here that another does not: the rest is equal."""
    again = {"recompute_method": "uniform", "recompute_num_layers": 1}
    fields = {"recompute": recompute, **(again if recompute == "full" else {})}
    layout = Layout(dp=8, zero_stage=1, **fields)
    candidates = given("bf16", layout, runtime="megatron-lm", attention=attention)
    memory = memory_of(candidates)
    assert memory.cached == pytest.approx(share * memory.allocated)
