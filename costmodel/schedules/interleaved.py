"""Interleaved 1F1B: each rank holds `vpp` virtual stages and walks them in groups of `pp`."""

from __future__ import annotations

import sys

import numpy as np

from costmodel.schedules.bounds import whole_backward_bound
from costmodel.schedules.program import (
    IntMatrix,
    PassOrder,
    Program,
    RelativeSeconds,
    Shape,
    alternating_held,
    one_forward_one_backward,
)
from costmodel.schedules.schedule import Schedule
from costmodel.table import FloatColumn, IntColumn


def order(shape: Shape) -> PassOrder:
    """Groups of `pp` micro batches through chunk 0, 1, ...; backward from the last chunk.

    Source: Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2, figure 4; needs
    `num_microbatches` to be a multiple of `pp`.
    """
    pp, vpp, num_microbatches = shape
    index = np.arange(num_microbatches * vpp)
    group, inside = np.divmod(index, pp * vpp)
    chunk, member = np.divmod(inside, pp)
    microbatch = group * pp + member
    return PassOrder(chunk, microbatch, vpp - 1 - chunk, microbatch)


def warmup(pp: int, vpp: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `order`."""
    return 2 * (pp - 1 - np.arange(pp)) + (vpp - 1) * pp


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    return one_forward_one_backward(order(shape), warmup(shape.pp, shape.vpp), shape)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight. Source: as `alternating_held`."""
    pp, vpp = layers.shape
    return alternating_held(order(Shape(pp, vpp, num_microbatches)), warmup(pp, vpp), layers)


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=2,
    least_vpp=2,
    most_vpp=sys.maxsize,
    repeats=True,
)
