"""Ranks of HybridEP tell each other where every token goes."""

import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset


def exchanged(dispatcher, ep):
    cluster = parse_cluster("1x8:b200")
    training = TrainingSpec(seq_length=4096, global_batch_size=64)
    job = Job(
        model=preset("qwen3-30b-a3b"),
        training=training,
        cluster=cluster,
        runtime="megatron-bridge",
        options=RuntimeOptions(moe_dispatcher=dispatcher),
    )
    machine = machine_of(cluster, training.precision)
    table = LayoutTable.of([Layout(dp=8, ep=ep)])
    layer = blocks(context_of(job, machine).with_table(table)).layers[0]
    gathered = 4096.0 * 128 * table.ep
    seconds = collective_seconds(
        machine, "all_gather", gathered, group(machine, table.ep, table.etp)
    )
    return layer.forward.ep_comm - layer.backward.ep_comm, seconds


def test_a_forward_pass_gathers_a_byte_for_every_token_and_expert():
    more, seconds = exchanged("hybridep", 8)
    assert more == pytest.approx(seconds)
    assert (seconds > 0).all()


@pytest.mark.parametrize(("dispatcher", "ep"), [("deepep", 8), ("alltoall", 8), ("hybridep", 1)])
def test_no_other_dispatcher_and_no_rank_alone_does(dispatcher, ep):
    more, _ = exchanged(dispatcher, ep)
    assert more == 0
