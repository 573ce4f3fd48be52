"""Grouped interleaved: interleaved 1F1B in small groups, with split backward passes.

Small groups reach a rank's last virtual stage early, so it holds fewer activations; each weight
gradient follows its input gradient at once, which frees them, after the input gradient is on its
way. It is the order in which PipeOffload copies activations to the host.
"""

from __future__ import annotations

import sys

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.program import Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.bounds import split_chunks_bound
from trainplan.costmodel.schedules.patterns.frames import chunked_order, one_forward_one_backward
from trainplan.costmodel.schedules.programs.two_bp import split_backward
from trainplan.costmodel.schedules.schedule import Schedule, ShapeRule


def warmup(pp: int, vpp: int, group: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `program`."""
    return (vpp - 1) * group + pp - 1 - np.arange(pp)


def group_size(shape: Shape) -> int:
    """Micro batches that go through one virtual stage in a row: p unless stated.

    Raises:
        SpecError: The group is too small for a gradient to come back in time, or too large.
    """
    pp, m = shape.pp, shape.num_microbatches
    group = shape.microbatch_group_size or pp
    if not -(-pp // 2) <= group <= pp or (m % group and m % group + group < pp):
        raise SpecError(
            f"grouped-interleaved needs microbatch_group_size from pp / 2 to pp={pp}, and "
            f"num_microbatches={m} in whole groups, or a rest of pp - microbatch_group_size; "
            f"{group} is none of these"
        )
    return group


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank.

    Source: Wan et al., PipeOffload, arXiv:2503.01328, section 3.3: groups of ceil(p / 2) to p.
    """
    group = group_size(shape)
    first = warmup(shape.pp, shape.vpp, group)
    frame = one_forward_one_backward(chunked_order(shape, group), first, shape)
    return split_backward(frame, defer=False)


def too_few(pp: IntColumn, vpp: IntColumn, num_microbatches: IntColumn) -> BoolColumn:
    """Are there fewer micro batches than ranks?

    Source: a group is `pp` micro batches or more, so that its first one is back on rank 0 when the
    next chunk is due; fewer than `pp` fill none.
    """
    return np.asarray(num_microbatches < pp)


SCHEDULE = Schedule(
    program,
    held_by(program),
    split_chunks_bound,
    rounds_to_fill=2,
    least_vpp=2,
    most_vpp=sys.maxsize,
    rules=(ShapeRule("num_microbatches must be at least pp", too_few),),
    options=frozenset({"microbatch_group_size"}),
    splits_backward=True,
)
