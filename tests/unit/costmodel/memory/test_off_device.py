"""Bytes of a node off its GPUs, and what leaves the GPUs for them."""

import numpy as np
import pytest

from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.step import price

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


@pytest.fixture(name="priced")
def _priced(make_job):
    def make(offload, runtime="deepspeed", host="dgx-2", **layout):
        one = Layout(**{"dp": 4, "zero_stage": 3, **layout}, offload=OffloadSpec(**offload))
        job = make_job("small-dense", f"1x{one.world_size}:h100-sxm@{host}", 32)
        job = job.model_copy(update={"runtime": runtime})
        table = LayoutTable.of([one])
        found = price(context_of(job, machine_for(job)).with_table(table))
        return num_parameters(job.model), found

    return make


def test_an_offloaded_adam_takes_sixteen_bytes_a_parameter_of_its_node(priced):
    """fp32 weights, two moments and gradients: DeepSpeed's estimators count the same 16."""
    count, found = priced({"optimizer": 1})
    assert found.memory.off_device.host_used()[0] == pytest.approx(16 * count, rel=0.01)
    half = priced({"optimizer": 0.5})[1]
    assert half.memory.off_device.host_used()[0] == pytest.approx(8 * count, rel=0.01)


def test_offloaded_weights_take_two_more(priced):
    """`estimate_zero3_model_states_mem_needs` of DeepSpeed: 18 bytes a parameter."""
    count, found = priced({"optimizer": 1, "parameters": "cpu"})
    assert found.memory.off_device.host_used()[0] == pytest.approx(18 * count, rel=0.01)
    assert found.memory.weights.max() == 0


def test_states_on_drives_leave_buffers_in_host_memory(priced):
    count, found = priced({"optimizer": 1, "tier": "nvme"})
    away = found.memory.off_device
    assert away.drive_used()[0] == pytest.approx(16 * count, rel=0.01)
    assert away.host_used()[0] == pytest.approx(16 * count, rel=0.01)  # of one subgroup: all of it
    count, found = priced({"parameters": "nvme"})
    assert found.memory.off_device.drive_used()[0] == pytest.approx(2 * count, rel=0.01)
    assert found.memory.off_device.host_used()[0] == 4 * 5 * 1e8 * 2


@pytest.mark.parametrize(("zero_stage", "left"), [(3, 0.0), (2, 0.0), (1, 1.0)])
def test_gradients_follow_the_optimizer_where_they_are_sharded(priced, zero_stage, left):
    with_it = priced({"optimizer": 1}, zero_stage=zero_stage)[1].memory
    without = priced({}, zero_stage=zero_stage)[1].memory
    assert with_it.gradients.max() == left * without.gradients.max()
    assert with_it.optimizer.max() == 0


def test_checkpoints_on_the_host_leave_that_of_one_layer_on_the_gpu(priced):
    off, on = (priced({"checkpoints": share}, **FULL)[1] for share in (0, 1))
    layers = off.job.model.num_hidden_layers
    each = float(off.memory.activations.max()) / layers
    assert float(on.memory.activations.max()) == 0
    assert float(on.memory.in_transit.max()) == pytest.approx(each)
    assert on.memory.off_device.host_used()[0] == pytest.approx(4 * layers * each)


def test_modules_that_megatron_keeps_on_the_host_are_counted_there(make_job):
    layout = Layout(dp=4, offload_modules=("core_attn",))
    job = make_job("small-dense", "1x4:h100-sxm@dgx-2", 32)
    found = [
        price(context_of(job, machine_for(job)).with_table(LayoutTable.of([one]))).memory
        for one in (Layout(dp=4), layout)
    ]
    freed = float((found[0].activations - found[1].activations).max())
    assert freed > 0
    assert found[1].off_device.host_used()[0] == pytest.approx(4 * freed)


def test_without_drives_there_is_no_space_and_without_a_host_no_limit(priced):
    away = priced({"optimizer": 1})[1].memory.off_device
    assert away.host_limit == 1536 * GIB
    assert away.fits().all()
    small = np.array([away.host_limit / 2])
    assert not type(away)(small, small, small * 0, small * 0, small * 0 + 2, *limits(away)).fits()


def limits(away):
    return away.host_limit, away.drive_limit
