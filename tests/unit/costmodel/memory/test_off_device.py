"""Bytes of a node off its GPUs, and what leaves the GPUs for them."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.host import PROCESS_BYTES
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


def locked(size):
    """The next power of two."""
    return 2.0 ** np.ceil(np.log2(size))


def kept(found):
    """Of the ranks of a node, without processes and what a checkpoint copies."""
    away = found.memory.off_device
    return float((away.host_used() - away.saving)[0])


def test_an_offloaded_adam_takes_more_than_sixteen_bytes_a_parameter_of_its_node(priced):
    """fp32 weights and two moments; gradients, page-locked, in fp32 and as they are accumulated."""
    count, found = priced({"optimizer": 1})
    each = count / 4
    states = 12 * each + locked(4 * each) + locked(2 * each)
    assert kept(found) == pytest.approx(4 * states, rel=0.01)
    half = priced({"optimizer": 0.5})[1]
    assert kept(half) == pytest.approx(2 * states, rel=0.01)


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_below_zero_3_masters_and_gradients_are_one_page_locked_tensor_each(priced, zero_stage):
    count, found = priced({"optimizer": 1}, zero_stage=zero_stage)
    each = count / 4
    assert kept(found) == pytest.approx(4 * (8 * each + 2 * locked(4 * each)), rel=0.01)


def test_a_subgroup_of_gradients_is_one_page_locked_tensor(make_job):
    """1e9 parameters of 4 bytes, in 2^32; and of 2 bytes all of them in one."""
    job = make_job("llama3-8b", "1x1:h100-sxm@dgx-2", 32).model_copy(
        update={"runtime": "deepspeed"}
    )
    one = Layout(zero_stage=3, offload=OffloadSpec(optimizer=1))
    found = price(context_of(job, machine_for(job)).with_table(LayoutTable.of([one])))
    count = num_parameters(job.model)
    states = 12 * count + 8 * 2**32 + locked(4 * (count - 8e9)) + locked(2 * count)
    assert kept(found) == pytest.approx(states, rel=1e-6)


def test_offloaded_weights_are_one_page_locked_tensor_and_those_before_it(priced):
    """Tensor by tensor as they are loaded: torch keeps what it has page-locked once."""
    count, found = priced({"optimizer": 1, "parameters": "cpu"})
    alone = kept(found) - kept(priced({"optimizer": 1})[1])
    each = 2 * count / 4
    assert 4 * (locked(each) + each) <= alone < 4 * (locked(each) + 2 * each)
    assert found.memory.weights.max() == 0


def test_megatron_page_locks_every_tensor(make_job):
    """Masters and gradients of 4 bytes; 1.5 and 3 M parameters of an expert take a third more."""
    job = make_job("qwen3-30b-a3b", "1x8:h100-sxm@dgx-2", 64)
    one = Layout(tp=4, dp=2, ep=8, sequence_parallel=True, offload=OffloadSpec(optimizer=1))
    found = price(context_of(job, machine_for(job)).with_table(LayoutTable.of([one])))
    count = num_parameters(job.model)
    assert kept(found) / count == pytest.approx(8 + 8 * 4 / 3, rel=0.01)


@pytest.mark.parametrize(
    ("runtime", "processes", "copied"),
    [("deepspeed", 4, 2), ("megatron-lm", 12, 2), ("torchtitan", 4, 0)],
)
def test_a_checkpoint_and_processes_add_to_it(priced, runtime, processes, copied):
    """All weights in 16 bits, on one rank or each once; Megatron has two workers a rank."""
    stage = 3 if runtime != "megatron-lm" else 1
    count, found = priced({"optimizer": 1}, runtime=runtime, zero_stage=stage)
    expected = copied * count + processes * PROCESS_BYTES
    assert found.memory.off_device.saving[0] == pytest.approx(expected, rel=0.01)
    nothing = priced({}, runtime=runtime, zero_stage=stage)[1]
    assert nothing.memory.off_device.host_used()[0] == 0


def test_below_zero_3_every_rank_loads_the_whole_model(priced):
    count, found = priced({"optimizer": 0.001}, zero_stage=2)
    away = found.memory.off_device
    assert away.loading[0] == pytest.approx(4 * 2 * count, rel=0.01)
    assert priced({"optimizer": 1})[1].memory.off_device.loading[0] == 0
    large = replace(away, loading=1e3 * away.loading)
    assert large.host_used()[0] == large.loading[0]


def test_states_on_drives_leave_buffers_in_host_memory(priced):
    count, found = priced({"optimizer": 1, "tier": "nvme"})
    away = found.memory.off_device
    assert away.drive_used()[0] == pytest.approx(16 * count, rel=0.01)
    assert kept(found) == pytest.approx(16 * count, rel=0.01)  # of one subgroup: all of it
    count, found = priced({"parameters": "nvme"})
    assert found.memory.off_device.drive_used()[0] == pytest.approx(2 * count, rel=0.01)
    assert kept(found) == 4 * 5 * 1e8 * 2


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
    assert kept(on) == pytest.approx(4 * layers * each)


def test_modules_that_megatron_keeps_on_the_host_are_counted_there(make_job):
    layout = Layout(dp=4, offload_modules=("core_attn",))
    job = make_job("small-dense", "1x4:h100-sxm@dgx-2", 32)
    found = [
        price(context_of(job, machine_for(job)).with_table(LayoutTable.of([one])))
        for one in (Layout(dp=4), layout)
    ]
    plain, moved = (one.memory.activations for one in found)
    freed = float((plain - moved).max())
    assert freed > 0
    assert kept(found[1]) == pytest.approx(4 * freed)


def test_without_drives_there_is_no_space_and_without_a_host_no_limit(priced):
    away = priced({"optimizer": 1})[1].memory.off_device
    assert away.host_limit == 1536 * GIB
    assert away.fits().all()
    small = np.array([away.host_limit / 2])
    assert not replace(away, host=small, host_optimizer=small, fraction=small * 0 + 2).fits()
