"""1F1B and its kin with weight gradients apart from input gradients."""

import sys
from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.patterns.frames import (
    chunked_order,
    one_forward_one_backward,
    weights_behind,
)
from trainplan.costmodel.schedules.programs.one_forward_one_backward import (
    WHOLE_GROUPS,
    group_size,
    in_turn,
    one_f_one_b_program,
    splits_unevenly,
)
from trainplan.costmodel.schedules.schedule import (
    ALL_MICROBATCHES,
    Schedule,
    ShapeRule,
    Work,
    held_throughout,
    split_backward_bound,
    split_chunks_bound,
)


def split_backward(program: Program, *, defer: bool = True) -> Program:
    """The program with each backward pass in two.

    Weight gradients follow their input gradients at once, or, `defer`red, the forward passes of
    their rank: then one behind each input gradient, while the rank waits for the next, and the
    rest at the end. Every op is its own action.
    Source: Rae et al., 2BP, arXiv:2405.18047, section 3.
    """
    columns = program.kind, program.stage, program.microbatch
    longest = int((program.lengths + (program.kind == Op.WHOLE).sum(axis=1)).max())
    kind, stage, microbatch = (np.zeros((len(program.kind), longest), np.int64) for _ in columns)
    kind[:] = int(Op.NONE)
    for row, (ops, stages, microbatches) in enumerate(zip(*columns, strict=True)):
        pick, kinds = _split(ops, defer=defer)
        kind[row, : len(pick)] = kinds
        stage[row, : len(pick)] = stages[pick]
        microbatch[row, : len(pick)] = microbatches[pick]
    return replace(program, kind=kind, stage=stage, microbatch=microbatch, joint=None)


def _split(ops: IntColumn, *, defer: bool) -> tuple[IntColumn, IntColumn]:
    """Which op of a row every new op comes from, and its kind."""
    real = np.flatnonzero(ops != Op.NONE)
    whole = real[ops[real] == Op.WHOLE]
    pick = np.concatenate([real, whole])
    weights = np.full(len(whole), int(Op.WEIGHT))
    kinds = np.concatenate([np.where(ops == Op.WHOLE, int(Op.BACKWARD), ops)[real], weights])
    after = whole
    if defer:
        drain = whole[whole > np.flatnonzero(ops == Op.FORWARD)[-1]]
        after = np.append(drain, np.full(len(whole) - len(drain), len(ops)))
    order = np.argsort(np.concatenate([real, after]), kind="stable")
    return pick[order], kinds[order]


def two_bp_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank: those of 1F1B, weight gradients deferred. Source: as `split_backward`."""
    return split_backward(one_f_one_b_program(shape, relative))


def two_bp_bound(work: Work) -> FloatColumn:
    """Seconds no order beats, whatever it holds. Source: as `split_backward_bound`."""
    return split_backward_bound(work, work.microbatches)


TWO_BP = Schedule(
    two_bp_program,
    held_throughout,
    two_bp_bound,
    rounds_to_fill=ALL_MICROBATCHES,
    splits_backward=True,
)
"""2BP: the backward pass in two, on any schedule; weight gradients at once or at the end."""


def zb_h1_warmup(pp: int, vpp: int, group: int) -> IntColumn:
    """Forward passes of each rank before it takes turns. Source: `ZB_H1`."""
    return pp - 1 - np.arange(pp) + (vpp - 1) * group


def zb_h1_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    group = group_size(shape)
    first = zb_h1_warmup(shape.pp, shape.vpp, group)
    return weights_behind(chunked_order(shape, group), first, np.arange(shape.pp), shape)


ZB_H1 = Schedule(
    zb_h1_program,
    held_by(zb_h1_program),
    split_chunks_bound,
    rounds_to_fill=2,
    most_vpp=sys.maxsize,
    rules=(
        ShapeRule(
            WHOLE_GROUPS.message,
            lambda pp, vpp, m: np.asarray((vpp > 1) & splits_unevenly(pp, vpp, m)),
        ),
    ),
    options=frozenset({"microbatch_group_size"}),
    splits_backward=True,
    repeats=True,
)
"""ZB-H1: 1F1B with the weight gradients put off until the rank would wait.

Every rank holds what 1F1B holds on its first. With several virtual stages a rank, the groups are
those of interleaved 1F1B and the warm-up is shorter: a gradient comes home by B only.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.1, figure 2;
virtual stages as torch.distributed.pipelining `schedules.py`, `ScheduleInterleavedZeroBubble`."""


def zb_h2_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    rank = np.arange(shape.pp)
    first = 2 * (shape.pp - 1 - rank)
    return weights_behind(in_turn(shape.num_microbatches), first, 2 * rank, shape)


def zb_h2_bound(work: Work) -> FloatColumn:
    """Seconds no order beats. Source: as `split_backward_bound`."""
    return split_backward_bound(work, 2 * work.pp - 1)


ZB_H2 = Schedule(
    zb_h2_program,
    held_by(zb_h2_program),
    zb_h2_bound,
    rounds_to_fill=2,
    rules=(
        ShapeRule(
            "num_microbatches must be at least 2 * pp - 1, so that the warm-up fills the pipeline",
            lambda pp, vpp, m: np.asarray(m < 2 * pp - 1),
        ),
    ),
    splits_backward=True,
    repeats=True,
)
"""ZB-H2: ZB-H1 with a warm-up twice as deep, so that no rank waits in the steady phase.

Every rank holds 2p - 1 micro batches.
Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.2, figure 3."""


def small_group_size(shape: Shape) -> int:
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


def grouped_interleaved_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank.

    Source: Wan et al., PipeOffload, arXiv:2503.01328, section 3.3: groups of ceil(p / 2) to p.
    """
    group = small_group_size(shape)
    first = zb_h1_warmup(shape.pp, shape.vpp, group)
    frame = one_forward_one_backward(chunked_order(shape, group), first, shape)
    return split_backward(frame, defer=False)


GROUPED_INTERLEAVED = Schedule(
    grouped_interleaved_program,
    held_by(grouped_interleaved_program),
    split_chunks_bound,
    rounds_to_fill=2,
    least_vpp=2,
    most_vpp=sys.maxsize,
    # a group is pp micro batches or more, so that its first one is back on rank 0 when the next
    # chunk is due; fewer than pp fill none
    rules=(
        ShapeRule("num_microbatches must be at least pp", lambda pp, vpp, m: np.asarray(m < pp)),
    ),
    options=frozenset({"microbatch_group_size"}),
    splits_backward=True,
)
"""Grouped interleaved: interleaved 1F1B in small groups, with split backward passes.

Small groups reach a rank's last virtual stage early, so it holds fewer activations; each weight
gradient follows its input gradient at once, which frees them, after the input gradient is on its
way. It is the order in which PipeOffload copies activations to the host."""
