"""Unusual splits that fit, and that no bound of the memory may refuse."""

import numpy as np
import pytest

from tests.properties.every_split import on_the_clock, with_memory
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.planner.stages.bounds.layer_capacity import layer_capacities, may_fit
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.solve.batch import ManySplits

UNIFORM = {"recompute": "full", "recompute_method": "uniform"}
ONE_GROUP, THREE = ({**UNIFORM, "recompute_num_layers": number} for number in (1, 3))


def job_of(layers, positions=65_536, dense=None, offloaded=None):
    """Small layers with a large table of positions; the first ones dense, or all."""
    moe = MoeSpec(
        num_experts=4,
        num_experts_per_tok=4,
        moe_intermediate_size=2048,
        first_k_dense_replace=dense or 0,
    )
    model = ModelSpec(
        num_hidden_layers=layers,
        hidden_size=512,
        intermediate_size=128 if dense else 2048,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=32,
        vocab_size=1000,
        position_embedding="learned",
        max_position_embeddings=positions,
        moe=moe if dense else None,
    )
    return Job(
        model=model,
        training=TrainingSpec(seq_length=32_768, global_batch_size=8),
        cluster=parse_cluster("1x4:h100-sxm"),
        options=RuntimeOptions(offload_activation_layers=offloaded),
    )


CASES = {
    "an empty end recomputes nothing": (job_of(4, 200_000), 1, ONE_GROUP),
    "a short stage recomputes less at once": (job_of(6, 200_000), 1, THREE),
    "dear layers lie where few passes wait": (job_of(8, dense=4), 2, {}),
    "a group on the host is kept nowhere": (job_of(6, offloaded=1), 1, THREE),
}


@pytest.mark.parametrize("case", CASES)
def test_whatever_fits_is_not_refused(case):
    job, vpp, recomputed = CASES[case]
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    schedule = "interleaved" if vpp > 1 else "1f1b"
    layout = Layout(pp=2, dp=2, vpp=vpp, schedule=schedule, zero_stage=1, **recomputed)
    table = LayoutTable.of([layout])
    candidates = Candidates(job, machine, traits, table)
    every = on_the_clock(job, table)
    for number, bytes_ in enumerate((every.used * (1 + 1e-9)).tolist()):
        for bounding in PricedGroups.of(candidates, [bytes_]).bounding:
            room = layer_capacities(bounding, np.array([0]), 1e9)
            assert may_fit(bounding.kinds, room)[0], every.layers[number]
        splits = ManySplits(with_memory(every, bytes_).row, every.layers[[number]])
        assert splits.may_fit()[0], every.layers[number]
