"""Rows, columns and inner size of a matrix product are three sizes, and none stands for another."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.kernels.products import Product, product_seconds, roofline_seconds
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.residuals.kriging import residuals

MACHINE = machine_of(parse_cluster("1x8:h100-sxm"), "bf16")
SIZES = (512.0, 2048.0, 8192.0)
OUTPUT = 4


def product(*sizes):
    return Product(*(np.array([size]) for size in sizes))


@pytest.mark.parametrize("slow", [*permutations(SIZES)])
def test_what_was_measured_of_one_shape_is_no_news_of_its_turned_ones(slow):
    """Rows, columns and inner size in that order, then bytes of an output element."""
    shapes = [*permutations(SIZES)]
    points = [*np.array(shapes).T, np.full(6, float(OUTPUT))]
    ratios = np.array([3.0 if shape == slow else 1.0 for shape in shapes])
    rate = replace(MACHINE.half, residuals=residuals(points, ratios, nugget=0.0))
    for shape in shapes:
        found = product_seconds(MACHINE, rate, product(*shape), OUTPUT)[0]
        curve = product_seconds(MACHINE, MACHINE.half, product(*shape), OUTPUT)[0]
        assert found / curve == pytest.approx(3.0 if shape == slow else 1.0)


def test_a_product_moves_both_operands_and_writes_its_output_in_its_own_width():
    m, n, k = SIZES
    rate = replace(MACHINE.half, fixed_seconds=0.0, flop_factor=0.0, byte_factor=1.0)
    moved = roofline_seconds(1.0, rate, product(m, n, k), OUTPUT)[0]
    assert moved == 2 * (m * k + k * n) + OUTPUT * m * n


def test_a_cast_passes_over_the_rows_by_the_inner_size():
    m, n, k = SIZES
    cast = replace(MACHINE.half, cast_bytes=3.0)
    more = product_seconds(MACHINE, cast, product(m, n, k), OUTPUT)
    more = more - product_seconds(MACHINE, MACHINE.half, product(m, n, k), OUTPUT)
    one = product_seconds(MACHINE, cast, product(m, 1.0, 1.0), OUTPUT)
    one = one - product_seconds(MACHINE, MACHINE.half, product(m, 1.0, 1.0), OUTPUT)
    assert more[0] / one[0] == pytest.approx(k)
