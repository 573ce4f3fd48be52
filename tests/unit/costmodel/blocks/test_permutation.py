"""Rows that are sorted by expert, by how a dispatcher sends them."""

import numpy as np
import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset


def layer(dispatcher, model, ep):
    """Forward seconds of its memory-bound kernels, and the machine."""
    job = Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=cluster_of("1x8:h100-sxm"),
        runtime="megatron-bridge",
        options=RuntimeOptions(moe_dispatcher=dispatcher),
    )
    context = context_for(job)
    table = LayoutTable.of([Layout(dp=8, ep=ep)])
    kind = blocks(context.with_table(table)).layers[0]
    return float(kind.forward.elementwise[0]), context.machine


@pytest.mark.parametrize("ep", [2, 8])
def test_a_plain_exchange_sorts_rows_that_a_token_sent_once_is_copied_to(ep):
    """Eight experts a token: four sorts beside them, against the copies that reach ranks."""
    plain, machine = layer("alltoall", "qwen3-30b-a3b", ep)
    once, _ = layer("deepep", "qwen3-30b-a3b", ep)
    rows, width = 4096 * 8, 2 * 2048
    copies = ep * (1 - (1 - 1 / ep) ** 8)
    passes = 4 + 2 / 8 - 2 * copies / 8
    moved = elementwise_seconds(machine, np.array([passes * rows * width]))
    assert plain - once == pytest.approx(float(moved[0]), rel=1e-6)


def test_rows_of_a_ranks_one_expert_are_in_order():
    assert layer("alltoall", "mixtral-8x7b", 8)[0] == layer("deepep", "mixtral-8x7b", 8)[0]
