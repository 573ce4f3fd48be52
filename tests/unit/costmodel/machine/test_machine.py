"""Clusters as numbers."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec, NodeGroup, parse_cluster
from trainplan.costmodel.machine import machine_of

MIXED = "2x8:a100-sxm-80gb+2x8:h100-sxm"


def test_a_mixed_cluster_is_as_slow_as_its_slowest_group_in_everything():
    mixed, a100, h100 = (
        machine_of(parse_cluster(text), "bf16")
        for text in (MIXED, "4x8:a100-sxm-80gb", "4x8:h100-sxm")
    )
    pair = (a100, h100)
    assert mixed.num_gpus == 32
    for field in ("memory_bytes", "memory_bytes_per_second", "nic_bytes_per_second"):
        assert getattr(mixed, field) == min(getattr(m, field) for m in pair)
    assert mixed.linear == a100.linear
    np.testing.assert_array_equal(
        mixed.bus_bytes_per_second, np.minimum(*(m.bus_bytes_per_second for m in pair))
    )
    np.testing.assert_array_equal(mixed.alpha_seconds, np.maximum(*(m.alpha_seconds for m in pair)))


def test_the_order_of_groups_does_not_matter():
    forth = machine_of(parse_cluster(MIXED), "bf16")
    back = machine_of(parse_cluster("2x8:h100-sxm+2x8:a100-sxm-80gb"), "bf16")
    assert forth.linear == back.linear
    assert forth.host_bytes_per_second == back.host_bytes_per_second
    assert forth.attention_max_efficiency == back.attention_max_efficiency


def test_several_nodes_without_a_known_network_are_refused():
    unknown = [n for n in catalog.gpu_names() if catalog.gpu(n).nic_gb_per_s is None]
    assert unknown
    with pytest.raises(SpecError, match="NIC"):
        machine_of(parse_cluster(f"2x1:{unknown[0]}"), "bf16")


def test_one_node_needs_no_network():
    name = next(n for n in catalog.gpu_names() if catalog.gpu(n).nic_gb_per_s is None)
    assert machine_of(parse_cluster(f"1x1:{name}"), "bf16").nic_bytes_per_second == float("inf")


def test_fp8_on_a100_is_unsupported():
    with pytest.raises(UnsupportedError, match="fp8"):
        machine_of(parse_cluster("1x8:a100-sxm-80gb"), "fp8")


def test_the_network_of_a_node_is_shared_by_its_gpus():
    node = NodeGroup(
        gpu="h100-sxm", num_nodes=2, gpus_per_node=8, nic=NicSpec(per_node=4, gb_per_s=50)
    )
    machine = machine_of(ClusterSpec(groups=(node,)), "bf16")
    assert machine.nic_bytes_per_second == 4 * 50e9 / 8


@pytest.mark.parametrize("name", catalog.gpu_names())
def test_every_gpu_of_the_catalog_makes_a_machine(name):
    precision = "bf16" if "bf16" in catalog.gpu(name).peak_tflops else "fp16"
    machine = machine_of(parse_cluster(f"1x1:{name}"), precision)
    assert machine.linear.peak_flop_per_second > 0
    assert machine.provenance


def limited(text: str, watts: float) -> ClusterSpec:
    """A cluster whose boards may draw so much."""
    cluster = parse_cluster(text)
    group = cluster.groups[0].model_copy(update={"power_limit_w": watts})
    return cluster.model_copy(update={"groups": (group,)})


def test_less_power_lowers_the_clock_by_its_cube_root_and_moves_no_memory_slower():
    whole = machine_of(parse_cluster("1x8:h100-sxm"), "fp8")
    less = machine_of(limited("1x8:h100-sxm", 700 * 0.8**3), "fp8")
    assert less.linear.flop_factor == pytest.approx(whole.linear.flop_factor / 0.8)
    assert less.half.flop_factor == pytest.approx(whole.half.flop_factor / 0.8)
    assert less.attention_max_efficiency == pytest.approx(whole.attention_max_efficiency * 0.8)
    assert less.memory_bytes_per_second == whole.memory_bytes_per_second
    assert less.linear.byte_factor == whole.linear.byte_factor
    assert any(p.quantity == "h100-sxm at 358.4 W" for p in less.provenance)
    assert machine_of(limited("1x8:h100-sxm", 700), "fp8").linear == whole.linear


def test_a_chip_on_a_weaker_board_runs_as_the_same_chip_at_that_power():
    board = machine_of(parse_cluster("1x8:h100-sxm-96gb-500w"), "bf16")
    assert board.linear == machine_of(limited("1x8:h100-sxm", 500), "bf16").linear


def test_a_limit_that_the_board_cannot_reach_is_refused():
    with pytest.raises(SpecError, match="power limit of 900 W: a board of h100-sxm draws at most"):
        machine_of(limited("1x8:h100-sxm", 900), "bf16")
    with pytest.raises(SpecError, match="power limit of 100 W: below 175 W nothing is known"):
        machine_of(limited("1x8:h100-sxm", 100), "bf16")
    with pytest.raises(SpecError, match="no board power of gh200-96gb is known"):
        machine_of(limited("1x4:gh200-96gb", 500), "bf16")
