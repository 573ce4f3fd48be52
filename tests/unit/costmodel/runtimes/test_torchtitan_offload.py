"""torchtitan with its weights on the host: what moves when, what it takes, what is refused."""

import pytest

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.copy_streams.transfer_volume import Lane
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.step import price
from trainplan.costmodel.step.offloaded import row_work
from trainplan.planner.space.choices import broken_rules

AWAY = OffloadSpec(optimizer=1, parameters="cpu")


@pytest.fixture(name="job")
def _job(make_job):
    job = make_job("small-dense", "1x4:h100-sxm@dgx-2", 16)
    return job.model_copy(update={"runtime": "torchtitan"})


def priced(job, **layout):
    table = LayoutTable.of([Layout(dp=4, zero_stage=3, **layout)])
    return price(context_of(job, machine_for(job)).with_table(table))


def test_states_and_gradients_take_sixteen_bytes_of_host_memory_and_none_of_the_gpu(job):
    away = priced(job, offload=AWAY).memory
    node = away.off_device
    kept = (node.host_used() - node.saving)[0] / num_parameters(job.model)
    assert 16 <= kept < 8 + 2 * 8  # 8 of masters and gradients, page-locked by powers of two
    for term in (away.weights, away.gradients, away.optimizer):
        assert term.max() == 0


def test_fp32_shards_are_copied_for_both_passes_and_gradients_leave_after_each(job):
    """4 micro batches of a quarter of the parameters: 2 x 4 bytes in, 4 bytes out."""
    found = priced(job, offload=AWAY)
    share = num_parameters(job.model) / 4
    speed = found.machine.host_bytes_per_second
    lanes = row_work(found, 0).lane_seconds[:, 0]
    assert lanes[Lane.H2D] * speed == pytest.approx(4 * 2 * 4 * share, rel=0.01)
    assert lanes[Lane.D2H] * speed == pytest.approx(4 * 4 * share, rel=0.01)
    assert lanes[Lane.CPU] > 0


@pytest.mark.parametrize(
    ("offload", "layout"),
    [
        (OffloadSpec(optimizer=1), {}),
        (OffloadSpec(parameters="cpu"), {}),
        (OffloadSpec(optimizer=0.5, parameters="cpu"), {}),
        (AWAY, {"zero_stage": 2}),
        (AWAY, {"pp": 2, "dp": 2, "zero_stage": 3}),
        (AWAY, {"dp_replicate": 4}),
    ],
)
def test_one_key_moves_all_or_nothing(job, offload, layout):
    one = Layout(**{"dp": 4, "zero_stage": 3, **layout}, offload=offload)
    names = {rule.name for rule in broken_rules(job, LayoutTable.of([one]))[0]}
    assert "policy_offloads_all" in names


def test_all_of_it_is_legal(job):
    one = Layout(dp=4, zero_stage=3, offload=AWAY)
    assert broken_rules(job, LayoutTable.of([one]))[0] == ()
