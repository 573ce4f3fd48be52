"""What leaves its rail, against every pair of ranks counted one by one."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.comm import collective_seconds, group, link_speed
from trainplan.costmodel.comm.rails import off_rail
from trainplan.costmodel.hardware.cluster import NicSpec, parse_cluster
from trainplan.costmodel.machine import machine_of


def machine(cluster="16x8:h100-sxm", network="rail-only", **nic):
    spec = parse_cluster(cluster).model_copy(update={"network": network})
    if nic:
        groups = [g.model_copy(update={"nic": NicSpec(**nic)}) for g in spec.groups]
        spec = spec.model_copy(update={"groups": tuple(groups)})
    return machine_of(spec, "bf16")


def shares(size, stride, domain=8, rails=8, gpus=4096):
    ring, exchange = off_rail(np.array([size]), np.array([stride]), domain, rails, gpus)
    return float(ring[0]), float(exchange[0])


def counted(size, stride, domain, rails, gpus):
    """Shares of bytes between domains that are for another rail, over every pair of every group."""
    exchanges, rings = [0.0], [0.0]
    for first in range(gpus):
        if first % (size * stride) >= stride or first + (size - 1) * stride >= gpus:
            continue
        members = [first + i * stride for i in range(size)]
        where = [(rank // domain, rank % domain * rails // domain) for rank in members]
        pairs = [(a, b) for a, b in product(where, where) if a[0] != b[0]]
        if not pairs:
            continue
        exchanges.append(sum(a[1] != b[1] for a, b in pairs) / len(pairs))
        domains = {d: [r for e, r in where if e == d] for d in dict(where)}
        kept = sum(min(on.count(r) for on in domains.values()) for r in range(rails))
        rings.append(1 - kept / min(len(on) for on in domains.values()))
    return max(rings), max(exchanges)


@pytest.mark.parametrize(("domain", "rails"), [(8, 8), (8, 4), (6, 6), (6, 3)])
def test_shares_are_those_of_every_pair_of_ranks(domain, rails):
    for size, stride in product((2, 3, 4, 6, 8, 12, 16), (1, 2, 3, 4, 6, 8, 12, 16)):
        if size * stride <= 96:
            found = shares(size, stride, domain, rails, 96)
            assert found == pytest.approx(counted(size, stride, domain, rails, 96))


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("dp", [16, 64, 512])
def test_replicas_and_stages_of_whole_domains_stay_on_their_rails(tp, dp):
    """Rings of tp x dp and hops between stages: what dense layouts send between nodes."""
    assert shares(dp, tp)[0] == 0
    assert shares(1, tp * dp)[0] == 0


def test_a_hop_between_stages_that_share_a_node_changes_rails():
    """From ranks 4 to 7 of one node to ranks 0 to 3 of the next."""
    assert shares(1, 4) == (1, 1)
    assert shares(1, 4, rails=1) == (0, 0)
    assert shares(1, 12) == (1, 1)


@pytest.mark.parametrize("size", [16, 64, 512])
def test_of_an_all_to_all_all_but_one_rank_of_a_domain_is_on_another_rail(size):
    assert shares(size, 1) == (0, pytest.approx(7 / 8))
    assert shares(size, 2) == (0, pytest.approx(3 / 4))
    assert shares(size, 8) == (0, 0)


def test_an_all_to_all_takes_the_published_factor():
    """1 + (K - 1) / K b_nic / b_hb of what goes between domains, to the rank (arXiv:2307.12169)."""
    size, one, tensor = np.array([128]), np.array([1]), np.array([1e9])
    plain, rails = machine(network="any-to-any"), machine()
    both = [
        collective_seconds(m, "alltoall", tensor, group(m, size, one))[0] for m in (plain, rails)
    ]
    nic = plain.nic_bytes_per_second * plain.constants.nic_efficiency
    added = 7 / 8 * nic / link_speed(plain, one)[0]
    start = collective_seconds(plain, "alltoall", tensor * 1e-9, group(plain, size, one))[0]
    assert (both[1] - start) / (both[0] - start) == pytest.approx(1 + added, rel=1e-6)


@pytest.mark.parametrize(
    ("domain", "nic", "link"), [(8, 50, 450), (72, 100, 900), (256, 50, 450), (256, 25, 300)]
)
def test_datasheet_speeds_give_the_published_8_2_to_11_2_percent(domain, nic, link):
    """Nodes of H100, GB200 NVL72, DGX GH200, and A100 in large domains."""
    share = shares(4 * domain, 1, domain, domain)[1]
    assert 0.082 <= share * nic / link <= 0.112


def test_a_dense_group_takes_as_long_as_in_any_network():
    size, stride = np.array([2, 16, 128, 64, 16]), np.array([1, 8, 1, 2, 4])
    plain, rails = machine(network="any-to-any"), machine()
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        tensor = np.full(5, 1e9)
        both = [
            collective_seconds(m, operation, tensor, group(m, size, stride)) for m in (plain, rails)
        ]
        assert both[0].tolist() == both[1].tolist()


def test_a_group_that_borders_cut_sends_over_links_first():
    """Of groups of 3 on nodes of 8, ranks 6 to 8 are on rails 6, 7 and 0."""
    size, one = np.array([3]), np.array([1])
    plain, rails = machine(network="any-to-any"), machine()
    fast, slow = (group(m, size, one).nic_bytes_per_second[0] for m in (plain, rails))
    assert 1 / slow == pytest.approx(1 / fast + 1 / link_speed(plain, one)[0])


def test_one_domain_has_no_rails():
    assert machine("1x8:h100-sxm").rails == 0
    assert machine(per_node=4, gb_per_s=50).rails == 4
    assert machine("32x4:gb200").rails == 64


def test_adapters_that_make_no_equal_rails_are_refused():
    with pytest.raises(SpecError, match="makes no equal rails: give a nic"):
        machine(per_node=3, gb_per_s=50)


def test_groups_of_unlike_domains_are_refused():
    with pytest.raises(SpecError, match="different size, so no rail joins them"):
        machine("4x8:h100-sxm+4x4:h100-sxm")
