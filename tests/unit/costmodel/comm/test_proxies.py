"""Messages between nodes that the host posts for GPUs."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.comm import collective_seconds, exchange_speed, group, proxied_seconds
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.clusters import cluster_of

KIB = 1024.0


def across(cluster, ranks):
    machine = machine_of(cluster_of(cluster), "bf16")
    return machine, group(machine, np.array([ranks]), np.array([1]))


def seconds(cluster, ranks, messages, size, proxy=None):
    machine, links = across(cluster, ranks)
    return float(proxied_seconds(machine, links, np.array([messages]), size, proxy)[0])


def test_a_short_message_takes_as_long_as_one_adapter_sends_a_fixed_number_of_bytes():
    known = catalog.constants()
    each = known.uccl_message_bytes / 12.5e9
    assert seconds("2xp5.48xlarge", 16, 2048.0, 4 * KIB) == pytest.approx(
        known.uccl_start_seconds + 2048 * each
    )


def test_a_newer_adapter_posts_more_messages():
    known = catalog.constants().uccl_start_seconds
    older = seconds("4xp5.48xlarge", 32, 4096.0, 4 * KIB, "uccl") - known
    newer = seconds("4xp6-b300.48xlarge", 32, 4096.0, 4 * KIB, "uccl") - known
    assert older / newer == pytest.approx(50 / 12.5)


def test_the_one_proxy_of_nvshmem_waits_for_every_node():
    known = catalog.constants().nvshmem_message_bytes
    for nodes in (2, 4):
        priced = seconds(f"{nodes}xp5.48xlarge", 8 * nodes, 1000.0, 4 * KIB, "nvshmem")
        assert priced == pytest.approx(1000 * nodes * known / 12.5e9)


def test_long_messages_take_the_adapters_of_a_gpu():
    known = catalog.constants()
    wide = 1e6
    assert seconds("2xp5.48xlarge", 16, 100.0, wide) == pytest.approx(
        known.uccl_start_seconds + 100 * wide / (50e9 * known.nic_efficiency)
    )


def test_one_proxy_of_a_plain_exchange_sends_no_faster_than_it_posts():
    known = catalog.constants()
    machine, links = across("2xp6-b300.48xlarge", 16)
    limit = known.alltoall_proxied_bytes_per_second
    assert exchange_speed(machine, links)[0] == pytest.approx(limit)
    free = replace(machine, by_proxies=False)
    assert exchange_speed(free, links)[0] == pytest.approx(100e9 * known.nic_efficiency)


def test_a_transport_changes_no_ring():
    machine, links = across("2xp5.48xlarge", 16)
    free = replace(machine, by_proxies=False)
    tensor = np.array([1e8])
    assert collective_seconds(machine, "all_gather", tensor, links) == collective_seconds(
        free, "all_gather", tensor, links
    )
