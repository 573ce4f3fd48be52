"""Weight gradients that are added to the accumulated ones after their product."""

import numpy as np
import pytest

from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.accumulation import added_bytes, layer_weights
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import Candidates, context_of
from trainplan.costmodel.kernels.memory_bound import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import block_params
from trainplan.costmodel.runtimes.registry import RUNTIMES, traits_of

TABLE = LayoutTable.of([Layout(tp=2, dp=dp, micro_batch_size=2) for dp in (1, 2, 4, 8)])
"""Of a global batch of 16: 8, 4, 2 and 1 micro batches."""


@pytest.fixture
def job_of(make_job):
    def make(runtime, precision="bf16", model="small-dense"):
        job = make_job(model, "2x8:a100-sxm-80gb", global_batch_size=16, precision=precision)
        return job.model_copy(update={"runtime": runtime})

    return make


def bytes_of(job):
    return added_bytes(context_of(job, machine_of(job.cluster, "bf16")).with_table(TABLE))


def test_products_that_accumulate_leave_nothing_to_add(job_of):
    apart = {"megatron-deepspeed", "deepspeed", "arctic-training", "nanotron", "torch-eager"}
    methods = {name for name, one in RUNTIMES.items() if one.method} - {
        "megatron-dualpipe",
        "tutel",
        "fsmoe",
    }
    apart |= methods  # as in DeepSpeed
    fused = set(RUNTIMES) - apart
    assert "megatron-zero-bubble" in fused
    for name in fused:
        assert not bytes_of(job_of(name)).any()


def test_the_first_gradient_of_a_step_is_added_to_nothing(job_of):
    added = bytes_of(job_of("megatron-deepspeed", "fp16"))
    assert added.tolist() == [6 * share for share in (7 / 8, 3 / 4, 1 / 2, 0)]
    assert (bytes_of(job_of("megatron-deepspeed", "fp32")) == 2 * added).all()


def test_a_buffer_of_higher_precision_takes_every_gradient(job_of):
    assert (bytes_of(job_of("nanotron")) == 2 + 4 + 4).all()


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_more_micro_batches_make_the_backward_pass_of_one_longer(job_of, model):
    job = job_of("megatron-deepspeed", "fp16", model)
    found = blocks(context_of(job, machine_for(job)).with_table(TABLE))
    for block in found.by_kind:
        assert (np.diff(block.backward.elementwise) < 0).all()
        assert (np.diff(block.weight) < 0).all()
        assert (np.diff(block.backward.total) <= 1e-12).all()
        assert np.ptp(block.forward.total) == 0


def test_adding_streams_the_weights_of_the_rank(job_of):
    job = job_of("megatron-deepspeed", "fp16")
    machine = machine_for(job)
    head = blocks(context_of(job, machine).with_table(TABLE)).head.backward.elementwise
    table_rows = 32_000 / 2 * job.model.hidden_size
    expected = 6 * table_rows * 7 / 8 / streaming_bytes_per_second(machine)
    assert head[0] - head[3] == pytest.approx(expected)


@pytest.mark.parametrize(("runtime", "moved"), [("megatron-lm", 2 + 4 + 4 + 2), ("torchtitan", 2)])
def test_the_gradient_of_the_token_table_is_a_whole_one(job_of, runtime, moved):
    """Zeros are written; products that accumulate leave it to be added to the others."""
    job = job_of(runtime)
    machine = machine_for(job)
    one, wide = (
        blocks(Candidates(changed, machine, traits_of(job), TABLE)).embedding
        for changed in (job, with_vocabulary(job, 64_000))
    )
    more = 32_000 / 2 * job.model.hidden_size
    longer = wide.backward.elementwise - one.backward.elementwise
    assert longer == pytest.approx(moved * more / streaming_bytes_per_second(machine))
    assert wide.weight - one.weight == pytest.approx(longer)
    assert (wide.forward.total == one.forward.total).all()


def with_vocabulary(job, rows):
    model = job.model.model_copy(update={"vocab_size": rows})
    return job.model_copy(update={"model": model})


def test_nearly_all_parameters_of_a_layer_are_added(job_of):
    for model in ("small-dense", "small-moe"):
        job = job_of("megatron-deepspeed", "fp16", model)
        params = block_params(job, TABLE)
        held = params.layers[-1] + params.experts[-1]
        added = layer_weights(job.model.kinds[-1], TABLE)
        assert (0.9 * held < added).all()
        assert (added <= held).all()


def test_a_pass_that_waits_for_the_host_hides_the_addition(job_of):
    job = job_of("megatron-deepspeed", "fp16", "small-moe")
    layer = blocks(context_of(job, machine_for(job)).with_table(TABLE)).layers[-1].backward
    assert (layer.host > 0).all()
    assert np.ptp(layer.total) == pytest.approx(0, abs=1e-12)
