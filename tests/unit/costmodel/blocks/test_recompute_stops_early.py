"""Recomputation that ends with the last tensor a layer's backward pass reads."""

from dataclasses import replace

import pytest

from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES, traits_of
from trainplan.costmodel.step import price

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def given(
    model="llama3.1-8b", runtime="torchtitan", layout=FULL, *, dropout=False, stops_early=True
):
    job = Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=8),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime=runtime,
    )
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([Layout(**{"dp": 8, "zero_stage": 3} | layout)])
    traits = traits_of(job)
    kernels = replace(traits.kernels, dropout=dropout)
    recompute = replace(traits.recompute, stops_early=stops_early)
    traits = replace(traits, kernels=kernels, recompute=recompute)
    return job, machine, traits, table


def step(**how):
    return price(Candidates(*given(**how))).step_seconds[0]


def test_a_shorter_recomputation_makes_a_shorter_step():
    assert step() < step(stops_early=False)


def test_nothing_changes_where_nothing_is_recomputed():
    for layout in ({}, {"recompute": "selective", "recompute_modules": ("core_attn",)}):
        assert step(layout=layout) == step(layout=layout, stops_early=False)


@pytest.mark.parametrize(
    "name", ["torchtitan", "llm-foundry-fsdp", "fms-fsdp", "torch-eager", "maxtext"]
)
def test_runtimes_on_checkpoints_of_torch_or_a_compiler_stop_early(name):
    assert RUNTIMES[name].recompute.stops_early


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-deepspeed", "nemo", "nanotron"])
def test_runtimes_with_functions_of_their_own_repeat_whole_layers(name):
    assert not RUNTIMES[name].recompute.stops_early


def test_the_down_projection_alone_does_not_run_again():
    dense = row_blocks(Candidates(*given())).kinds.layers[0]
    left_out = dense.forward - dense.recompute_forward
    assert 0.15 < left_out.gemm[0] / dense.forward.gemm[0] < 0.4
    assert left_out.total[0] == left_out.gemm[0]


@pytest.mark.parametrize("how", [{"dropout": True}, {"model": "olmo2-7b"}, {"model": "gemma2-9b"}])
def test_what_a_mask_or_a_norm_behind_the_layer_needs_runs_again(how):
    dense = row_blocks(Candidates(*given(**how))).kinds.layers[0]
    assert (dense.forward - dense.recompute_forward).total[0] == 0.0


@pytest.mark.parametrize(("sequence_parallel", "share"), [(True, 1 / 4), (False, 1 / 2)])
def test_of_two_exchanges_of_a_layer_the_last_does_not_run_again(sequence_parallel, share):
    """All-reduces behind attention and MLP: the second one. Gathers and scatters of both: the last
    scatter, for what the second gather brings is read backward."""
    layout = FULL | {"tp": 2, "dp": 4, "sequence_parallel": sequence_parallel}
    dense = row_blocks(Candidates(*given(layout=layout))).kinds.layers[0]
    left_out = dense.forward - dense.recompute_forward
    assert left_out.tp_comm / dense.forward.tp_comm == pytest.approx(share, rel=1e-6)
