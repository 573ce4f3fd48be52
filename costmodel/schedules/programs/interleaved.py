"""Interleaved 1F1B: each rank walks its `vpp` virtual stages in groups of micro batches."""

from __future__ import annotations

import sys

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import whole_backward_bound
from trainplan.costmodel.schedules.patterns.frames import (
    alternating_held,
    chunked_order,
    one_forward_one_backward,
)
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule


def rounds(pp: IntColumn, num_microbatches: IntColumn) -> IntColumn:
    """Groups that the micro batches of a step fall into, unless stated.

    Source: torch.distributed.pipelining `schedules.py`, `ScheduleInterleaved1F1B.__init__`.
    """
    return np.asarray(np.maximum(1, num_microbatches // pp))


def group_size(shape: Shape) -> int:
    """Micro batches that go through one virtual stage in a row. Source: as `rounds`.

    Raises:
        SpecError: The group given deadlocks; the rule is that of Megatron Core `schedules.py`,
            forward_backward_pipelining_with_interleaving.
    """
    pp, m, group = shape.pp, shape.num_microbatches, shape.microbatch_group_size
    if group is None:
        return m // max(1, m // pp)
    if not pp <= group <= m or 0 < m % group < pp:
        raise SpecError(
            f"microbatch_group_size={group} must lie between pp={pp} and num_microbatches={m}, and "
            "the last group must hold at least pp micro batches: change it"
        )
    return group


def splits_unevenly(pp: IntColumn, vpp: IntColumn, num_microbatches: IntColumn) -> BoolColumn:
    """Do the micro batches fall into groups of unequal size? Source: as `rounds`."""
    return np.asarray(num_microbatches % rounds(pp, num_microbatches) != 0)


WHOLE_GROUPS = ShapeRule(
    "micro batches must fall into equal groups of pp or more, so num_microbatches must be a "
    "multiple of num_microbatches // pp",
    splits_unevenly,
)


def warmup(pp: int, vpp: int, group: int) -> IntColumn:
    """Forward passes of each rank before its first backward.

    Source: Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2; the group as in Megatron
    Core `schedules.py`, get_pp_rank_microbatches.
    """
    return 2 * (pp - 1 - np.arange(pp)) + (vpp - 1) * group


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    group = group_size(shape)
    first = warmup(shape.pp, shape.vpp, group)
    return one_forward_one_backward(chunked_order(shape, group), first, shape)


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight. Source: as `alternating_held`."""
    pp, vpp = layers.shape
    shape = Shape(pp, vpp, num_microbatches)
    group = group_size(shape)
    return alternating_held(chunked_order(shape, group), warmup(pp, vpp, group), layers, group)


SCHEDULE = Schedule(
    program,
    held,
    whole_backward_bound,
    rounds_to_fill=2,
    least_vpp=2,
    most_vpp=sys.maxsize,
    rules=(WHOLE_GROUPS,),
    options=frozenset({"microbatch_group_size"}),
    repeats=True,
    stage_by_stage="in one group",
)
