"""Flows on uplinks, against every way to hash them."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.comm import group
from trainplan.costmodel.comm.collisions import expected_slowdown, fullest_link
from trainplan.costmodel.hardware.cluster import FabricTier, parse_cluster
from trainplan.costmodel.machine import machine_of


def machine(cluster="16x8:h100-sxm", **tier):
    spec = parse_cluster(cluster)
    fabric = (FabricTier(**tier),) if tier else ()
    return machine_of(spec.model_copy(update={"fabric": fabric}), "bf16")


def speeds(size, stride, **tier):
    links = group(machine(**tier), np.array([size]), np.array([stride]))
    return links.nic_bytes_per_second[0], links.exchange_bytes_per_second[0]


@pytest.mark.parametrize(
    ("flows", "links"), [(1, 1), (1, 4), (2, 2), (3, 4), (5, 3), (6, 2), (7, 4)]
)
def test_probabilities_are_those_of_every_way_to_hash(flows, links):
    fullest = [max(map(way.count, way)) for way in product(range(links), repeat=flows)]
    counted = [np.mean([most <= k for most in fullest]) for k in range(flows + 1)]
    found = fullest_link(flows, links)
    assert found == pytest.approx(counted[: len(found)], abs=1e-12)
    assert counted[len(found) - 1 :] == pytest.approx([1.0] * (flows + 2 - len(found)))


@pytest.mark.parametrize(("flows", "links"), [(32, 32), (64, 32), (1000, 64), (4, 512)])
def test_the_expected_load_is_that_of_draws(flows, links):
    random = np.random.default_rng(3)
    draws = random.multinomial(flows, np.full(links, 1 / links), size=20_000).max(axis=1)
    found = expected_slowdown(flows, links, 1, 1.0)
    assert found == pytest.approx(draws.mean(), abs=4 * draws.std() / 20_000**0.5 + 1e-9)


def test_the_slowest_of_many_switches_counts():
    """Of two flows on two links half collide; of two such switches three quarters have one that
    does."""
    assert expected_slowdown(2, 2, 1, 1.0) == pytest.approx(1.5)
    assert expected_slowdown(2, 2, 2, 1.0) == pytest.approx(1.75)
    assert expected_slowdown(2, 2, 1, 0.5) == pytest.approx(1.0)


def test_many_flows_of_each_gpu_spread_evenly():
    few = [expected_slowdown(32 * n, 32, 1, 1 / n) for n in (1, 2, 8, 64, 256)]
    assert few == sorted(few, reverse=True)
    assert few[0] > 3
    assert few[-1] < 1.15


def test_planned_paths_are_the_tier_of_before_to_the_bit():
    for over in (1.0, 3.0):
        plain = speeds(64, 1, reach_gpus=32, oversubscription=over)
        assert plain[0] == plain[1] == speeds(64, 1)[0] / over


@pytest.mark.parametrize("over", [1.0, 2.0])
def test_hashing_slows_what_leaves_a_switch_and_nothing_else(over):
    stated = {"reach_gpus": 32, "oversubscription": over, "ecmp_uplinks": 16}
    planned = speeds(64, 1, reach_gpus=32, oversubscription=over)
    assert speeds(32, 1, **stated) == speeds(32, 1)
    ring, exchange = speeds(64, 1, **stated)
    assert exchange < ring <= planned[0]
    strided = speeds(4, 32, **stated)
    assert strided[0] == strided[1]


def test_a_tier_of_several_switches_hashes_at_each():
    """256 GPUs below 8 switches of 32 links up: as 32 GPUs below one."""
    tier = FabricTier(reach_gpus=256, ecmp_uplinks=32)
    assert tier.gpus_per_switch == 32
    assert FabricTier(reach_gpus=256, ecmp_uplinks=32, oversubscription=2).gpus_per_switch == 64
    assert FabricTier(reach_gpus=16, ecmp_uplinks=32).gpus_per_switch == 16


def test_flows_that_nothing_hashes_and_switches_of_too_many_are_refused():
    with pytest.raises(ValueError, match="give ecmp_uplinks too"):
        FabricTier(reach_gpus=32, flows_per_gpu=4)
    with pytest.raises(ValueError, match="give ecmp_uplinks and oversubscription of one switch"):
        FabricTier(reach_gpus=1 << 15, ecmp_uplinks=4, oversubscription=1e6)
