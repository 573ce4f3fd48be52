"""Receive buffers of torch's pipelines; an oracle counts them on torch's own stages."""

import pytest

from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step.estimate import price


@pytest.fixture(scope="module")
def transients(make_job):
    """Of every pipeline rank, GPU memory for a moment."""

    def of(runtime, batch, **layout):
        job = make_job("small-dense", "1x8:h100-sxm", global_batch_size=batch)
        job = job.model_copy(update={"runtime": runtime})
        table = LayoutTable.of([Layout(dp=8 // layout.get("pp", 1), zero_stage=1, **layout)])
        context = context_of(job, machine_of(job.cluster, "bf16"))
        return price(context.with_table(table), merged=False).memory.transients[:, 0]

    return of


def test_a_buffer_of_torch_is_there_for_every_micro_batch(transients):
    more = transients("torchtitan", 256, pp=4) - transients("torchtitan", 128, pp=4)
    size = 2 * 2048 * 1024
    assert more.tolist() == [64 * size, 128 * size, 128 * size, 64 * size]


def test_virtual_stages_have_each_their_own(transients):
    layout = {"pp": 2, "vpp": 3, "schedule": "interleaved"}
    more = transients("torchtitan", 256, **layout) - transients("torchtitan", 128, **layout)
    assert more.tolist() == [32 * 5 * 2 * 2048 * 1024] * 2


@pytest.mark.parametrize(("runtime", "pp"), [("megatron-lm", 4), ("torchtitan", 1)])
def test_others_receive_nothing_that_grows_with_the_batch(transients, runtime, pp):
    assert (transients(runtime, 256, pp=pp) == transients(runtime, 128, pp=pp)).all()
