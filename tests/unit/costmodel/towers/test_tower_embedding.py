"""Seconds of what stands around the layers of a tower, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import SMALL_DENSE, TOWER
from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.parts import pass_seconds
from trainplan.costmodel.blocks.tower import tower_block
from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable

SAMPLES, PATCHES, MERGED, WIDTH, HIDDEN, MICRO = 5, 1156, 4, 352, 1024, 3
"""No two are equal."""


def nothing(of):
    zero = np.zeros(of.size)
    none = pass_seconds(of.size)
    return Block(
        none,
        none,
        zero,
        saved_bytes=zero,
        modules=(),
        recompute_forward=none,
        host_ahead=zero,
    )


def test_an_embedding_and_the_hand_over_pass_over_memory_five_times():
    """Patches are read, positions are read and the sum is written; tokens are read and written."""
    tower = TOWER.model_copy(
        update={
            "samples_per_sequence": SAMPLES,
            "patches_per_sample": PATCHES,
            "merged_patches": MERGED,
            "hidden_size": WIDTH,
            "projectors": (),
        }
    )
    job = Job(
        model=SMALL_DENSE.model_copy(update={"tower": tower}),
        training=TrainingSpec(seq_length=2048, global_batch_size=24),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    table = LayoutTable.of([Layout(tp=2, dp=4, micro_batch_size=MICRO)])
    keys = context_for(job).with_table(table)
    found = tower_block(keys, nothing).block
    patches, products = MICRO * SAMPLES * PATCHES, len(tower.embeddings)
    seconds = [
        elementwise_seconds(keys.machine, np.array([float(moved)]))[0]
        for moved in (3 * 2 * patches * WIDTH, 2 * 2 * patches / MERGED * HIDDEN)
    ]
    launches = (2 + products) * keys.machine.constants.launch_seconds
    assert found.forward.elementwise[0] == pytest.approx(sum(seconds) + launches)
    assert found.saved_bytes[0] == 2 * patches * 3 * TOWER.patch_size**2


@pytest.mark.parametrize(("frozen", "again"), [("none", 5.0), ("encoder", 0.0), ("all", 0.0)])
def test_a_frozen_encoder_is_not_recomputed(frozen, again):
    def layer(of):
        own = nothing(of)
        return replace(own, recompute_forward=pass_seconds(of.size, host=np.full(of.size, 1.25)))

    tower = TOWER.model_copy(update={"frozen": frozen, "num_hidden_layers": 4})
    job = Job(
        model=SMALL_DENSE.model_copy(update={"tower": tower}),
        training=TrainingSpec(seq_length=2048, global_batch_size=24),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    keys = context_for(job).with_table(LayoutTable.of([Layout(dp=8)]))
    assert tower_block(keys, layer).block.recompute_forward.host[0] == again
