"""What the width of a head costs, by kernel and architecture."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.kernels.attention import (
    fused_attention_seconds,
    fused_slowness,
    kernel_head_dim,
    unaligned_factor,
    unfused_attention_seconds,
)
from trainplan.costmodel.machine import machine_of

MACHINES = {
    name: machine_of(parse_cluster(f"1x8:{name}"), "bf16")
    for name in ("a100-sxm-80gb", "h100-sxm", "b200")
}
widths, names = st.integers(8, 512), st.sampled_from(sorted(MACHINES))
ONE = np.ones(1)


def fused(machine, length, width, speed=1.0):
    """Of one head in a batch that always has the same tokens."""
    found = fused_attention_seconds(
        machine,
        2.0 * 2**20 * length * width * ONE,
        length,
        (width, width),
        rows=ONE,
        speed=speed,
        calls=np.ones(1, dtype=np.int64),
    )
    return float(found.forward[0]), float(found.backward[0])


@pytest.mark.parametrize(
    ("width", "kernel"), [(64, 64), (72, 96), (108, 128), (128, 128), (132, 192), (576, 576)]
)
def test_a_head_runs_on_the_next_wider_kernel(width, kernel):
    assert kernel_head_dim(width) == kernel


def test_a_head_of_132_takes_half_as_long_again_as_its_numbers():
    assert fused_slowness("hopper", (132, 132)) == pytest.approx(192 / 132)


@pytest.mark.parametrize(
    ("architecture", "measured"),
    [("ampere", 0.563 / 0.620), ("hopper", 0.508 / 0.662), ("blackwell", 0.346 / 0.551)],
)
def test_narrow_heads_are_slower_the_faster_the_matrix_units(architecture, measured):
    assert 1 / fused_slowness(architecture, (64, 64)) == pytest.approx(measured, rel=0.02)


@given(width=widths, architecture=st.sampled_from(["ampere", "hopper", "blackwell", "cdna3"]))
def test_a_narrower_head_never_takes_longer(width, architecture):
    narrow, wide = (w * fused_slowness(architecture, (w, w)) for w in (width, width + 1))
    assert narrow <= wide * (1 + 1e-12)


@given(name=names, length=st.integers(16, 2**20), width=widths)
def test_a_longer_sequence_takes_longer_at_higher_speed(name, length, width):
    machine = MACHINES[name]
    for short, long in zip(
        fused(machine, length, width), fused(machine, 2 * length, width), strict=True
    ):
        assert short < long < 2 * short


def test_lengths_follow_the_kernels_that_training_runs():
    """FlashAttention-2 on A100, forward and backward: 133 TFLOP/s at 1k, 189 at 16k."""
    machine = MACHINES["a100-sxm-80gb"]
    free = machine.constants.model_copy(update={"attention_fixed_seconds": 1e-12})
    machine = replace(machine, constants=free)
    short, long = (sum(fused(machine, length, 128)) / length for length in (1024, 16384))
    assert short / long == pytest.approx(189 / 133, rel=0.02)


@pytest.mark.parametrize(("legacy", "factor"), [(True, 16.0), (False, 1.35)])
def test_rows_that_tensor_cores_cannot_load_slow_products(legacy, factor):
    assert unaligned_factor(2, 108, 2048, legacy=legacy) == factor
    assert unaligned_factor(2, 112, 2048, legacy=legacy) == 1.0
    assert unaligned_factor(4, 108, 2048, legacy=legacy) == 1.0
    assert unaligned_factor(2, 112, 2050, legacy=legacy) == factor


@given(name=names, width=st.integers(1, 32), legacy=st.booleans())
def test_aligned_heads_are_never_slower_than_narrower_ones_off_the_grid(name, width, legacy):
    machine, rows = MACHINES[name], np.array([2.0**20])

    def seconds(head):
        found = unfused_attention_seconds(
            machine, rows, 2048, (head, head), dropout=False, legacy=legacy
        )
        return float((found.forward + found.backward)[0])

    aligned = 8 * width
    assert seconds(aligned - 1) * aligned / (aligned - 1) >= seconds(aligned) * (1 - 1e-9)
