"""The slowest of many GPUs, by the spread that was measured of some."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.measured.stragglers import (
    largest_of,
    speed_spread,
    straggler_per_doubling,
)
from trainplan.costmodel.profiles.profile import Origin, PowerPoint, Profile
from trainplan.costmodel.step.estimate import local_seconds


def profile(seconds, state="product"):
    points = tuple(
        PowerPoint(state=state, gpus=8, gpu=f"n{i // 8}:{i % 8}", watts=690, seconds_per_call=one)
        for i, one in enumerate(seconds)
    )
    return Profile(
        gpu="h100-sxm", gpus_per_node=8, origins=(Origin(source="a test"),), points=points
    )


@pytest.mark.parametrize("count", [8, 64, 1024])
def test_the_largest_of_many_is_that_of_drawn_ones(count):
    drawn = np.random.default_rng(0).standard_normal((8000, count)).max(axis=1).mean()
    assert largest_of(count) == pytest.approx(drawn, rel=0.02)


def test_the_constant_is_within_half_a_percent_of_a_step_of_the_expected_slowest():
    constant = catalog.constants().straggler_per_doubling
    spread = 0.018
    for doublings in range(1, 12):
        exact = spread * (largest_of(8 * 2**doublings) - largest_of(8))
        assert abs(constant * doublings - exact) < 0.004
        assert straggler_per_doubling(spread, 8 * 2**doublings) * doublings == pytest.approx(exact)


def test_a_measured_spread_sets_what_a_step_waits_for_the_slowest():
    random = np.random.default_rng(3)
    cluster = parse_cluster("128x8:h100-sxm")
    one = np.array([1.0])
    plain = local_seconds(measured_machine(cluster, "bf16"), one)
    for spread in (0.005, 0.05):
        seconds = 1e-3 * (1 + spread * random.standard_normal(64))
        machine = measured_machine(cluster, "bf16", profile(seconds))
        found = np.std(seconds, ddof=1) / np.mean(seconds)
        rest = machine.constants.overhead_fraction * one + machine.constants.overhead_seconds
        expected = one + rest + found * (largest_of(1024) - largest_of(8))
        assert local_seconds(machine, one) == pytest.approx(expected)
        assert (local_seconds(machine, one) < plain) == (spread < 0.018)
        assert any("stragglers" in one.quantity for one in machine.provenance)


@pytest.mark.parametrize(("count", "state"), [(7, "product"), (64, "copy"), (0, "product")])
def test_few_gpus_and_other_loads_say_nothing(count, state):
    found = profile([1e-3, 1.1e-3] * (count // 2) + [1e-3] * (count % 2), state)
    assert speed_spread(found.points) is None
    cluster = parse_cluster("16x8:h100-sxm")
    usual = measured_machine(cluster, "bf16").constants.straggler_per_doubling
    assert measured_machine(cluster, "bf16", found).constants.straggler_per_doubling == usual
