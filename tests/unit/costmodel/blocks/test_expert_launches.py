"""What the host launches of layers with experts, and how long the GPU waits for it."""

import pytest

from trainplan.costmodel.blocks.host import layer_launches
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable


@pytest.fixture(name="launches")
def of_a_layer(make_job):
    """Of a layer under some options; `model` changes it."""
    plain = make_job("small-moe", "1x8:h100-sxm").model_copy(update={"runtime": "megatron-bridge"})

    def launches(model=None, moe=None, **options):
        layer = {"feed_forward": "moe", "mixer": "full_attention"}
        changed = plain.model.model_copy(update={**layer, **(model or {})})
        experts = changed.moe.model_copy(update=moe or {})
        changed = changed.model_copy(update={"moe": experts})
        job = plain.model_copy(update={"model": changed, "options": RuntimeOptions(**options)})
        table = LayoutTable.of([Layout(ep=8, dp=8)])
        candidates = context_of(job, machine_for(job)).with_table(table)
        return layer_launches(shapes(candidates)), candidates.machine.constants

    return launches


def test_an_exchange_beside_compute_takes_a_layer_apart_and_costs_the_host_more(launches):
    plain, constants = launches()
    alongside, _ = launches(overlap_moe_a2a=True)
    factor = constants.host_moe_beside
    assert factor > 1
    assert alongside.forward_seconds == pytest.approx(factor * plain.forward_seconds)
    assert alongside.backward_seconds == pytest.approx(factor * plain.backward_seconds)


def test_a_graph_of_the_step_leaves_nothing_to_launch_whatever_runs_beside(launches):
    found, _ = launches(cuda_graph="full_iteration", overlap_moe_a2a=True)
    assert (found.forward_seconds, found.backward_seconds, found.sync_seconds) == (0, 0, 0)


@pytest.mark.parametrize("options", [{}, {"cuda_graph": "partial"}, {"overlap_moe_a2a": True}])
def test_a_wait_for_sizes_lasts_as_long_as_what_is_launched_after_it(launches, options):
    """`dispatch_sync_seconds` is that of an eager layer without shared experts."""
    found, constants = launches(moe={"shared_expert_intermediate_size": 0}, **options)
    share = found.forward_seconds / constants.host_moe
    assert found.sync_seconds == pytest.approx(share * constants.dispatch_sync_seconds)


def test_shared_experts_launch_half_a_dense_layer(launches):
    without, constants = launches(moe={"shared_expert_intermediate_size": 0})
    shared, _ = launches(moe={"shared_expert_intermediate_size": 512})
    more = shared.forward_seconds - without.forward_seconds
    assert more == pytest.approx(constants.host_dense / 2)


def test_experts_alone_launch_less_unless_a_graph_holds_the_attention(launches):
    alone, half = {"mixer": "none"}, {"cuda_graph": "partial"}
    assert launches(alone, **half)[0].forward_seconds == launches(**half)[0].forward_seconds
    assert launches(alone)[0].forward_seconds < launches()[0].forward_seconds
