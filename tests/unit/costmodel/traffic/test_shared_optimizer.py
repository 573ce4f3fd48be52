"""HFSDP: copies of a shard share out its optimizer, and sum their gradients once a step."""

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import RankParams
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.data_parallel import step_traffic
from trainplan.costmodel.traffic.sharded import Unit, sharded_traffic

COPIED = Layout(dp=64, dp_replicate=8, zero_stage=3)
SHARED = COPIED.model_copy(update={"replicas_share_optimizer": True})
PARAMS = 1e9


@pytest.fixture(name="job")
def _job(make_job):
    return make_job("llama3-8b", "8x8:h100-sxm", 256, 4096)


def candidates_of(job, *layouts):
    machine = machine_of(job.cluster, job.training.precision)
    return context_of(job, machine).with_table(LayoutTable.of(layouts))


def test_the_optimizer_is_over_all_replicas_and_all_else_over_those_of_a_shard(job):
    whole = COPIED.model_copy(update={"dp_replicate": 1})
    layouts = (COPIED, SHARED, whole)
    copied, shared, all_over = (price(candidates_of(job, one)).memory for one in layouts)
    assert shared.optimizer.max() == pytest.approx(copied.optimizer.max() / 8)
    assert shared.optimizer.max() == pytest.approx(all_over.optimizer.max())
    assert shared.weights.max() == copied.weights.max()
    assert shared.gradients.max() == copied.gradients.max()


def test_copies_are_summed_or_scattered_and_gathered_once_a_step(job):
    one, params = np.ones(1, dtype=np.int64), RankParams(np.full((1, 1), PARAMS), np.zeros((1, 1)))
    on = candidates_of(job, COPIED, SHARED)
    links = group(on.machine, 8 * one, 8 * one)  # copies of a shard lie in eight nodes
    summed, scattered, gathered = (
        float(collective_seconds(on.machine, name, width * PARAMS / 8, links)[0])
        for name, width in (("all_reduce", 4.0), ("reduce_scatter", 4.0), ("all_gather", 2.0))
    )
    found = step_traffic(on, RankParams(params.shared.repeat(2, axis=1), np.zeros((1, 2))))
    assert found.reduce[0].tolist() == pytest.approx([summed, scattered], rel=0.02)
    assert found.gather[0].tolist() == pytest.approx([0.0, gathered], rel=0.02)


def test_a_micro_batch_sends_inside_a_shard_alone(job):
    unit = Unit(RankParams(np.full(1, PARAMS), np.zeros(1)))
    (copied,), (shared,), (inside,) = (
        sharded_traffic(candidates_of(job, one), [unit])
        for one in (COPIED, SHARED, Layout(dp=8, zero_stage=3))
    )
    assert copied.backward == shared.backward == inside.backward
    titan = job.model_copy(update={"runtime": "torchtitan"})  # sums copies in every backward pass
    (each,), (alone,) = (
        sharded_traffic(candidates_of(titan, one), [unit])
        for one in (COPIED, Layout(dp=8, zero_stage=3))
    )
    assert each.backward > alone.backward
