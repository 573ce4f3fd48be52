"""What was measured of one host and its drive, and what the formulas make of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from trainplan.costmodel.hardware.cluster import ClusterSpec, NodeGroup, parse_cluster
from trainplan.costmodel.kernels.memory_bound import ADAM_SHARD_BYTES, optimizer_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.machine.hosts import HOST_EFFICIENCY
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.profiles.profile import CopyPoint, OffloadedStepPoint, Profile
from trainplan.costmodel.traffic.offload import CPU_ADAM_PARAMS_PER_SECOND, offload_seconds

REPLAY = Path(__file__).parents[1] / "replay"
STEPS = json.loads((REPLAY / "offloaded_adam_h200.json").read_text())
CLUSTER = ClusterSpec(name="one", groups=(NodeGroup(gpu="h200-sxm", num_nodes=1, gpus_per_node=1),))


@pytest.fixture(scope="module")
def profile():
    document = json.loads((REPLAY / "host_h200.json").read_text())
    return Profile.model_validate({k: v for k, v in document.items() if k != "schema"})


@pytest.fixture(scope="module")
def machine(profile):
    return measured_machine(CLUSTER, "bf16", profile)


def speeds(profile, **wanted):
    return [
        p.num_bytes / p.time.seconds
        for p in profile.points
        if isinstance(p, CopyPoint) and all(getattr(p, k) == v for k, v in wanted.items())
    ]


def test_figures_of_the_host_reach_the_machine(machine):
    assert machine.host_bytes_per_second == pytest.approx(55.3e9, rel=0.01)
    assert machine.cpu_adam_params_per_second == pytest.approx(4.6e9, rel=0.01)
    assert machine.host_memory_bytes == pytest.approx(126 * 2**30, rel=0.01)
    assert machine.drives.space_bytes == pytest.approx(68.7e9, rel=0.01)
    assert machine.drives.read_bytes_per_second == pytest.approx(2.41e9, rel=0.01)
    assert machine.drives.write_bytes_per_second == pytest.approx(2.48e9, rel=0.01)
    assert machine.drives.both_bytes_per_second == pytest.approx(1.24e9, rel=0.01)


def test_adam_of_one_node_is_about_as_fast_as_published():
    """4.5e9 parameters a second: ZeRO-Offload, table 4; here 4.8e9 and 5.4e9 on 16 cores."""
    for step in STEPS:
        rate = step["params"] / step["adam_s"]
        assert rate == pytest.approx(CPU_ADAM_PARAMS_PER_SECOND, rel=0.2)


def test_gradients_leave_and_weights_come_back_as_fp32_at_the_speed_of_pinned_copies(machine):
    for step in STEPS:
        for way in ("gradients_out_s", "weights_back_s"):
            rate = 4 * step["params"] / step[way]
            assert rate == pytest.approx(machine.host_bytes_per_second, rel=0.03)


def test_the_price_of_an_offloaded_update_is_what_was_measured_within_a_tenth(machine):
    """Of one GPU that would have updated by itself in what is added back here."""
    table = LayoutTable.of([Layout(offload={"optimizer": 1.0})])
    for step in STEPS:
        measured = step["gradients_out_s"] + step["adam_s"] + step["weights_back_s"]
        params = np.full((1, 1), float(step["params"]))
        added = offload_seconds(machine, table, params)[0]
        alone = step["params"] * ADAM_SHARD_BYTES / optimizer_bytes_per_second(machine)
        assert added + alone == pytest.approx(measured, rel=0.1)


def test_copies_both_ways_at_once_cost_a_tenth_and_pageable_ones_most_of_the_speed(profile):
    (alone,) = speeds(
        profile, direction="host_to_device", num_bytes=2**28, pageable=False, both_ways=False
    )
    (both,) = speeds(profile, direction="host_to_device", both_ways=True)
    (pageable,) = speeds(profile, direction="host_to_device", pageable=True)
    assert both / alone == pytest.approx(0.91, abs=0.02)
    assert pageable / alone < 0.2


def test_a_drive_shares_itself_between_reads_and_writes(profile):
    """Both ways at once take as long as one after the other."""
    found = {"concurrent": 8, "cached": False, "both_ways": False}
    (read,) = speeds(profile, direction="nvme_read", **found)
    (write,) = speeds(profile, direction="nvme_write", **found)
    (both,) = speeds(profile, direction="nvme_read", both_ways=True)
    assert 1 / both == pytest.approx(1 / read + 1 / write, rel=0.05)


def test_the_estimate_of_a_step_from_the_drive_is_within_five_percent(profile):
    (step,) = [p for p in profile.points if isinstance(p, OffloadedStepPoint)]
    assert step.path_seconds == pytest.approx(step.time.seconds, rel=0.05)
    assert step.floor_seconds < step.time.seconds
    params = step.layers * 2 * step.width**2
    assert step.read_bytes == params * (2 + 2 + 12)
    assert step.written_bytes == params * (12 + 2)


@pytest.mark.parametrize(
    ("cluster", "published"),
    [
        ("1x1:h200-sxm", 55.3),  # tests/replay
        ("1x1:a100-pcie-80gb", 25.8),  # jdh4/della-gpu-A100
        ("1x8:a100-sxm-80gb", 24.8),  # forums.developer.nvidia.com/t/352186
        ("1x1:v100-sxm-32gb", 12.4),  # NVIDIA/nvbandwidth, a GPU of PCIe 3.0
        ("1x16:v100-sxm-32gb@dgx-2", 3.0),  # arXiv:2104.07857, figure 2b
    ],
)
def test_copies_to_the_host_reach_what_was_measured_within_a_tenth(cluster, published):
    """12 % of the nominal bandwidth would be too much for each of them."""
    found = machine_of(parse_cluster(cluster), "fp16").host_bytes_per_second / 1e9
    assert found == pytest.approx(published, rel=0.1)
    assert found / HOST_EFFICIENCY > 1.12 * published
