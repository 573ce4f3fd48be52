"""2BP: the backward pass in two, on any schedule; weight gradients at once or at the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.bounds import Work, split_backward_bound
from trainplan.costmodel.schedules.programs import one_f_one_b
from trainplan.costmodel.schedules.schedule import ALL_MICROBATCHES, Schedule


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


def program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank: those of 1F1B, weight gradients deferred. Source: as above."""
    return split_backward(one_f_one_b.program(shape, relative))


def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight: every micro batch, for its weight gradient. Source: as above."""
    return np.full(layers.shape, float(num_microbatches))


def bound(work: Work) -> FloatColumn:
    """Seconds no order beats, whatever it holds. Source: as `split_backward_bound`."""
    return split_backward_bound(work, work.microbatches)


SCHEDULE = Schedule(program, held, bound, rounds_to_fill=ALL_MICROBATCHES, splits_backward=True)
