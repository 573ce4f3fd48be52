"""Exchanges of experts that the host posts, and those that outlast what runs beside them."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.exchanges import slots_of, waits_for_exchange, with_exposed
from trainplan.costmodel.blocks.host import Launches
from trainplan.costmodel.blocks.parts import TERMS, Part, pass_seconds, shapes
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware import HostSpec
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels import ForwardBackward
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine.hosts import launch_factor
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.planner import estimate

LAYOUT = Layout(tp=8, pp=4, dp=2, ep=16, micro_batch_size=4, sequence_parallel=True)


def job_on(cluster, model="qwen3-30b-a3b", graph="none", **options):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=256),
        cluster=cluster_of(cluster),
        runtime="megatron-bridge",
        options=RuntimeOptions(cuda_graph=graph, **options),
    )


def step(cluster, layout=LAYOUT, **options):
    return estimate(job_on(cluster, **options), layout).step_time_s


def columns(cluster, layout=LAYOUT, graph="none", **options):
    context = context_for(job_on(cluster, graph=graph, **options))
    return shapes(context.with_table(LayoutTable.of([layout])))


def test_deepep_costs_small_experts_where_proxies_post_and_gains_where_gpus_do():
    plain, once = ({"moe_dispatcher": name} for name in ("alltoall", "deepep"))
    assert step("8xp5.48xlarge", **once) > 1.3 * step("8xp5.48xlarge", **plain)
    assert step("8xdgx-h100", **once) < step("8xdgx-h100", **plain)


def test_an_unstated_transport_is_priced_as_infiniband():
    assert step("8x8:h100-sxm", moe_dispatcher="deepep") == step(
        "8xdgx-h100", moe_dispatcher="deepep"
    )


def test_the_library_of_the_proxies_counts_on_efa_alone():
    one, other = ({"moe_dispatcher": "deepep", "deepep_proxy": x} for x in ("uccl", "nvshmem"))
    assert step("8xp5.48xlarge", **one) > step("8xp5.48xlarge", **other)
    assert step("8xdgx-h100", **one) == step("8xdgx-h100", **other)


def test_an_exchange_between_nodes_is_waited_for_where_the_host_posts_it():
    inside = LAYOUT.model_copy(update={"ep": 8})
    assert waits_for_exchange(columns("8xp5.48xlarge")).all()
    assert not waits_for_exchange(columns("8xp5.48xlarge", inside)).any()
    assert not waits_for_exchange(columns("8xdgx-h100")).any()


def layer_of(there, back, mixer=(1.0, 2.0), experts=(1.0, 2.0)):
    """A layer whose exchanges take so many seconds of either pass."""
    one = np.ones(1)
    ahead, behind = (
        pass_seconds(1, gemm=(mixer[way] + experts[way]) * one, ep_comm=sent * one)
        for way, sent in enumerate((there, back))
    )
    between = ForwardBackward(*(seconds * one for seconds in (*experts, 1.0)))
    return Part(ahead, behind, one, 0 * one, (), pass_seconds(1), between)


def exchanged(cluster, part, launched=0.0, batch=4, **options):
    """Seconds of exchanges that are left of each pass, where a rank has so many micro batches."""
    layout = LAYOUT.model_copy(update={"pp": 1, "tp": 1, "dp": 64, "micro_batch_size": 4 // batch})
    keys = columns(cluster, layout, **{"overlap_moe_a2a": True, **options})
    host = Launches(launched * np.ones(1), launched * np.ones(1), 0.0)
    found = with_exposed(keys, part, slots_of(part), host)
    return found.forward.ep_comm[0], found.backward.ep_comm[0]


@pytest.mark.parametrize("launched", [0.0, 12.0])
@pytest.mark.parametrize(("cluster", "posts"), [("8xdgx-h100", False), ("8xp5.48xlarge", True)])
def test_no_more_of_an_exchange_hides_than_what_stands_across_lasts(cluster, posts, launched):
    """Compute, or launches where they wait for it: those slow no compute that the GPU waits for."""
    alone, share = 1 / 4, catalog.constants().expert_overlap_contention
    forward, backward = (max(launched * posts, compute) for compute in (2.0, 4.0))
    for whole in (0.5, 10.0):
        slowed = max(0.0, 4 * share * whole - (forward + backward - 6.0)) / 4
        across = (backward / 2, forward / 2) * 2
        exposed = sum(max(slowed, whole - one) for one in across)
        left = exchanged(cluster, layer_of(2 * whole, 2 * whole), launched)
        assert sum(left) == pytest.approx((1 - alone) * exposed + alone * 4 * whole)
        assert left[0] == pytest.approx(left[1])
    assert exchanged(cluster, layer_of(0.0, 0.0), launched) == (0.0, 0.0), "to the bit"
    part = layer_of(1.0, 1.0)
    plain = columns(cluster, overlap_moe_a2a=False)
    host = Launches(np.ones(1), np.ones(1), 0.0)
    assert with_exposed(plain, part, slots_of(part), host) is part


@pytest.mark.parametrize(("there", "back"), [(1.0, 40.0), (40.0, 1.0), (0.0, 9.0), (9.0, 0.0)])
def test_neither_pass_gets_longer_than_it_is_without_overlap(there, back):
    left = exchanged("8xdgx-h100", layer_of(there, back))
    assert left[0] <= there + 1e-12
    assert left[1] <= back + 1e-12


def test_with_one_micro_batch_a_layer_takes_what_it_takes_without_overlap():
    """Clocks too: products have the duty of a pass whose exchange nothing hides."""
    layout = LAYOUT.model_copy(update={"pp": 1, "tp": 1, "dp": 64, "micro_batch_size": 4})
    plain, overlapped = (
        blocks(columns("8xdgx-h100", layout, "full_iteration", overlap_moe_a2a=on)).layers[0]
        for on in (False, True)
    )
    for name in ("forward", "backward", "recompute_forward"):
        mine, theirs = (list(TERMS(getattr(one, name))) for one in (plain, overlapped))
        assert mine == theirs


def test_a_repeated_forward_pass_has_its_exchange_to_itself():
    plain, overlapped = (
        blocks(keys).layers[0].recompute_forward.ep_comm[0]
        for keys in (columns("8xdgx-h100", overlap_moe_a2a=on) for on in (False, True))
    )
    assert plain > 0
    assert overlapped == pytest.approx(plain)


def test_a_partial_graph_copies_what_enters_it_once_forward_and_twice_backward():
    eager, graphed = (
        blocks(columns("8xdgx-h100", graph=graph)).layers[0] for graph in ("none", "partial")
    )
    forward = graphed.forward.elementwise - eager.forward.elementwise
    backward = graphed.backward.elementwise - eager.backward.elementwise
    bandwidth = columns("8xdgx-h100").machine.memory_bytes_per_second
    moved = 2 * 2 * 4 * 4096 * 2048 / 8
    assert forward[0] == pytest.approx(moved / bandwidth, rel=0.5)
    assert backward[0] == pytest.approx(2 * forward[0], rel=1e-6)


def test_a_slow_host_launches_slower_by_the_factor_of_catalog_or_cluster():
    machines = {name: columns(name).machine.host_factor for name in ("8x8:h100-sxm", "8xp5")}
    usual = catalog.host("p5").launch_factor.value
    assert machines == {"8x8:h100-sxm": 1.0, "8xp5": usual}
    stated = cluster_of("8xp5").groups[0].model_copy(update={"host": HostSpec(launch_factor=3.0)})
    assert launch_factor(stated, usual) == 3.0
