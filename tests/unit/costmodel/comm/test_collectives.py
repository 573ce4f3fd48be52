"""Seconds on the wire."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.comm import bus_factor, collective_seconds, group
from trainplan.costmodel.comm.collectives import collective_rate, hops_seconds
from trainplan.costmodel.comm.topology import pipeline_neighbour
from trainplan.costmodel.hardware.cluster import ClusterSpec, FabricTier, parse_cluster
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.machine.hardware import OPERATIONS

H100 = machine_of(parse_cluster("16x8:h100-sxm"), "bf16")
GIB = np.array([2.0**30])
sizes = st.sampled_from([2, 4, 8, 16, 32, 64, 128])


def one_group(size, stride=1, machine=H100):
    return group(machine, np.array([size]), np.array([stride]))


def seconds(operation, size, tensor=GIB):
    return collective_seconds(H100, operation, tensor, one_group(size))[0]


@given(sizes)
def test_an_all_reduce_takes_about_a_reduce_scatter_and_an_all_gather(size):
    parts = seconds("reduce_scatter", size) + seconds("all_gather", size)
    assert seconds("all_reduce", size) == pytest.approx(parts, rel=0.25)


@given(st.sampled_from(OPERATIONS), st.floats(1, 1e11))
def test_one_rank_alone_pays_nothing(operation, tensor):
    assert seconds(operation, 1, np.array([tensor])) == 0


@given(st.sampled_from(OPERATIONS), sizes)
def test_an_empty_tensor_costs_nothing(operation, size):
    assert seconds(operation, size, np.zeros(1)) == 0


@given(st.sampled_from(OPERATIONS), sizes, st.floats(1, 1e10), st.floats(1, 10))
def test_a_larger_tensor_takes_longer(operation, size, tensor, factor):
    small, large = (seconds(operation, size, np.array([tensor * f])) for f in (1.0, factor))
    assert small <= large


def test_bytes_on_the_bus_are_those_of_nccl_tests():
    eight = np.array([8])
    assert bus_factor("all_reduce", eight) == 2 * 7 / 8
    assert bus_factor("all_gather", eight) == 7 / 8


def test_a_group_inside_a_node_does_not_use_the_network():
    assert one_group(8).nodes == 1
    assert one_group(8, stride=2).nodes == 2


def test_ranks_of_one_node_drive_all_their_rails():
    """A gather over 4 ranks of each of 2 nodes has 4 NICs a node."""
    assert one_group(8, stride=2).inside == 4
    two_ranks, eight_ranks = one_group(2, stride=8), one_group(8, stride=2)
    ratio = eight_ranks.nic_bytes_per_second / two_ranks.nic_bytes_per_second
    assert ratio == 4


def test_the_time_of_a_long_message_is_its_bytes_over_the_network():
    links = one_group(16)
    rate = collective_rate(H100, "all_gather", links)
    slowest = min(links.nic_bytes_per_second[0], H100.bus_bytes_per_second[1][2])
    assert rate.seconds(8 * GIB)[0] == pytest.approx(15 / 16 * 8 * GIB[0] / slowest, rel=0.02)


@pytest.mark.parametrize(("operation", "grows"), [("all_gather", 4.0), ("all_reduce", 1.5)])
def test_a_ring_grows_with_its_ranks_and_a_tree_with_their_logarithm(operation, grows):
    constants, ranks = H100.constants, np.array([128, 512])
    near, far = hops_seconds(constants, operation, ranks, ranks / 8)
    assert far / near == pytest.approx(grows, rel=0.05)


def test_an_oversubscribed_tier_slows_only_groups_that_leave_it():
    cluster = parse_cluster("16x8:h100-sxm")
    tier = FabricTier(reach_gpus=32, oversubscription=4.0, latency_us=1.0)
    thin = machine_of(ClusterSpec(groups=cluster.groups, fabric=(tier,)), "bf16")
    near, far = one_group(32, machine=thin), one_group(64, machine=thin)
    assert near.nic_bytes_per_second == one_group(32).nic_bytes_per_second
    assert far.nic_bytes_per_second * 4 == one_group(64).nic_bytes_per_second
    assert far.fabric_seconds == pytest.approx(1e-6)


def test_stages_that_fill_whole_nodes_always_cross_the_network():
    pp, stride = np.array([4, 4, 4]), np.array([8, 4, 1])
    assert pipeline_neighbour(H100, pp, stride).tolist() == [1.0, 0.5, 0.0]


def test_a_group_that_nodes_tear_apart_goes_over_the_network():
    """Of groups of 4 on nodes of 6, ranks 4 to 7 are two on each of two nodes."""
    torn = one_group(4, machine=machine_of(parse_cluster("4x6:h100-sxm"), "bf16"))
    whole = one_group(4, machine=machine_of(parse_cluster("6x4:h100-sxm"), "bf16"))
    assert (torn.inside, torn.nodes) == (2, 2)
    assert (whole.inside, whole.nodes) == (4, 1)
    times = [collective_seconds(H100, "all_gather", GIB, one)[0] for one in (torn, whole)]
    assert times[0] > 2 * times[1]


@pytest.mark.parametrize("cluster", ["1x6:h100-sxm", "8x8:h100-sxm", "32x4:gb200"])
def test_groups_that_fill_nodes_or_racks_in_segments_are_whole(cluster):
    machine = machine_of(parse_cluster(cluster), "bf16")
    assert one_group(2, machine=machine).nodes == 1
    assert one_group(16, machine=machine).nodes == max(1, 16 / machine.domain_gpus)


def test_a_ring_hops_inside_nodes_and_once_fewer_than_there_are_nodes_between_them():
    """16 ranks on 2 nodes: 14 hops of 3.4 us over links and one of 14 us over the network.

    Source: NVIDIA/nccl v2.19.3 `src/graph/tuning.cc`, hwLat of Ring and Simple.
    """
    ranks, nodes = np.array([16]), np.array([2.0])
    for operation in ("all_gather", "reduce_scatter"):
        found = hops_seconds(H100.constants, operation, ranks, nodes)
        assert found == pytest.approx(14 * 3.4e-6 + 14e-6)
        apart = hops_seconds(H100.constants, operation, ranks, 16 * np.ones(1))
        assert apart == pytest.approx(15 * 14e-6)


@pytest.mark.parametrize(("nodes", "doublings"), [(2, 1), (4, 2), (16, 4)])
def test_a_tree_grows_by_one_step_with_every_doubling_of_its_nodes(nodes, doublings):
    step = H100.constants.inter_node_alpha_per_doubling
    found = hops_seconds(H100.constants, "all_reduce", np.array([64]), np.array([float(nodes)]))
    assert found == pytest.approx(doublings * step)


def test_a_collective_across_nodes_starts_with_the_network_and_its_hops():
    """Of nothing but a byte: the start of the fabric, then the way of the ring."""
    rate = collective_rate(H100, "all_gather", one_group(16))
    assert rate.start_seconds == pytest.approx(H100.constants.inter_node_alpha + 61.6e-6)
