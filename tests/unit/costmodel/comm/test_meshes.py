"""GPUs that reach each other over links of their own: a small group has few of them."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.comm import collective_seconds, group

MESHES = ("mi300x", "mi325x", "mi350x", "mi355x")


@pytest.fixture
def seconds(make_job):
    """(GPU, ranks, stride) -> seconds to gather 1 GiB inside a node."""

    def stated(gpu, ranks, stride=1):
        machine = machine_for(make_job("small-dense", f"1x8:{gpu}"))
        links = group(machine, np.array([ranks]), np.array([stride]))
        return float(collective_seconds(machine, "all_gather", np.array([2.0**30]), links)[0])

    return stated


@pytest.mark.parametrize("gpu", MESHES)
def test_a_pair_of_a_mesh_has_one_of_its_seven_links(seconds, gpu):
    link = catalog.gpu(gpu).link_gb_per_s.value / 7
    bus = {n: 2**30 * (n - 1) / n / seconds(gpu, n) / 1e9 for n in (2, 4, 8)}
    assert 0.6 * link < bus[2] < link
    assert bus[4] == pytest.approx(3 * bus[2], rel=0.1)
    assert 5.5 * bus[2] < bus[8] < 7 * link


def test_all_pairs_of_a_mesh_are_alike(seconds):
    assert seconds("mi300x", 2, 4) == seconds("mi300x", 2)


def test_two_dies_of_a_module_are_nearer_than_those_of_two_modules(seconds):
    assert seconds("mi250x", 2, 2) > 3 * seconds("mi250x", 2)
    assert seconds("mi250x", 2, 4) == seconds("mi250x", 2, 2)


def test_an_amd_gpu_is_priced_by_its_own_numbers(make_job):
    """Of the A100's constants, which stood in for its attention, nothing is left."""
    for gpu in (*MESHES, "mi250x"):
        machine = machine_for(make_job("small-dense", f"1x8:{gpu}"))
        assert (
            machine.attention_half_length != catalog.fitted("a100-sxm-80gb").attention.half_length
        )
        assert all("aiconfigurator" not in one.source for one in machine.provenance)
