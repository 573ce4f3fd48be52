import math

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.measured.varied import MEANINGS, SCALARS, varied
from trainplan.costmodel.step.simulate import step_seconds

TWICE = math.log(2)


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("llama3-8b", "2x8:h100-sxm", global_batch_size=32, seq_length=4096)


def seconds(job, layout, **changes):
    context = context_of(job, varied(machine_for(job), changes))
    return float(step_seconds(context.with_table(LayoutTable.of([layout])))[0])


def test_twice_the_speed_halves_the_step_and_seconds_are_added_to_it(job):
    layout = Layout(tp=4, dp=4, sequence_parallel=True)
    plain = seconds(job, layout)
    assert seconds(job, layout, speed=TWICE) == pytest.approx(plain / 2)
    assert seconds(job, layout, fixed_seconds=0.3) == pytest.approx(plain + 0.3)


def test_each_rate_shortens_the_step_and_each_delay_lengthens_it(job):
    layout = Layout(tp=4, pp=2, dp=2, sequence_parallel=True)
    plain = seconds(job, layout)
    for name in ("compute", "memory_bandwidth", "intra_node_bandwidth"):
        assert seconds(job, layout, **{name: TWICE}) < 0.99 * plain, name
    assert seconds(job, layout, inter_node_bandwidth=-3 * TWICE) > plain
    assert seconds(job, layout, latency=3 * TWICE) > plain
    assert seconds(job, layout, exposed_traffic=TWICE) > plain


def test_the_network_between_nodes_is_of_no_use_inside_one(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", global_batch_size=32, seq_length=4096)
    layout = Layout(tp=8, sequence_parallel=True)
    plain = seconds(job, layout)
    assert seconds(job, layout, inter_node_bandwidth=-TWICE) == plain
    assert seconds(job, layout, intra_node_bandwidth=-TWICE) > 1.05 * plain


def test_four_times_the_compute_and_the_memory_leave_what_does_not_compute(job):
    layout = Layout(tp=4, dp=4, sequence_parallel=True)
    fast = {"compute": 2 * TWICE, "memory_bandwidth": 2 * TWICE}
    assert seconds(job, layout) / 4 < seconds(job, layout, **fast) < seconds(job, layout)


def test_every_node_group_changes_alike(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm+1x8:a100-sxm-80gb", global_batch_size=32)
    before, after = machine_for(job), varied(machine_for(job), {"memory_bandwidth": TWICE})
    rates = [[one.memory_bytes_per_second for one in m.groups] for m in (before, after)]
    assert np.array(rates[1]) == pytest.approx(2 * np.array(rates[0]))


def test_every_scalar_has_a_meaning_and_a_spread_with_its_source():
    spreads = catalog.spreads().scalars
    assert set(MEANINGS) == set(SCALARS) == set(spreads)
    assert all(one.value > 0 and one.source for one in spreads.values())
