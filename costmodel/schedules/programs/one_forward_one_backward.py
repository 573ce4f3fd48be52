"""1F1B and its kin: whole backward passes, in an order that does not look at durations."""

import sys

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, RelativeSeconds, Shape, held_by
from trainplan.costmodel.schedules.patterns.frames import (
    PassOrder,
    alternating_held,
    chunked_order,
    one_forward_one_backward,
    single_stage_program,
)
from trainplan.costmodel.schedules.schedule import (
    ALL_MICROBATCHES,
    Schedule,
    ShapeRule,
    Work,
    held_throughout,
    whole_backward_bound,
)


def in_turn(num_microbatches: int) -> PassOrder:
    """Micro batches in turn. Source: Narayanan et al., arXiv:2006.09503, section 2."""
    microbatches = np.arange(num_microbatches)
    chunk = np.zeros(num_microbatches, dtype=np.int64)
    return PassOrder(chunk, microbatches, chunk, microbatches)


def one_f_one_b_warmup(pp: int) -> IntColumn:
    """Forward passes of each rank before its first backward. Source: as `in_turn`."""
    return pp - 1 - np.arange(pp)


def one_f_one_b_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    return one_forward_one_backward(
        in_turn(shape.num_microbatches), one_f_one_b_warmup(shape.pp), shape
    )


def one_f_one_b_held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight. Source: as `alternating_held`."""
    return alternating_held(in_turn(num_microbatches), one_f_one_b_warmup(len(layers)), layers, 1)


def one_f_one_b_bound(work: Work) -> FloatColumn:
    """Equation (1) of `schedule`, with detours.

    Rank r holds at most p - r micro batches, so from a backward pass on rank r the path up to rank
    0 and down again with the micro batch p later replaces r of rank r's own pairs; every such
    detour that is longer than the pairs it replaces adds to (1).
    Source: docs/explanation/search.md, "The pipeline bound".
    """
    seconds = work.seconds
    way = seconds.reach + seconds.home
    straight = way + work.microbatches * seconds.pair
    beyond = (work.microbatches - 1 - work.pp).astype(np.float64)
    detours = (beyond >= 0) * (np.floor(beyond / (work.rank + 1)) + 1)
    longer = np.maximum(0.0, way - work.rank * seconds.pair)
    return np.asarray((straight + detours * longer).max(axis=0))


ONE_F_ONE_B = Schedule(
    one_f_one_b_program, one_f_one_b_held, one_f_one_b_bound, rounds_to_fill=1, repeats=True
)
"""1F1B: start a backward pass as soon as one is ready."""


def rounds(pp: IntColumn, num_microbatches: IntColumn) -> IntColumn:
    """Groups that the micro batches of a step fall into, unless stated.

    Source: torch.distributed.pipelining `schedules.py`, `ScheduleInterleaved1F1B.__init__`.
    """
    return np.asarray(np.maximum(1, num_microbatches // pp))


def group_runs(size: int, pp: int, microbatches: int) -> bool:
    """Does a step run in groups of such a size?

    Source: Megatron Core `schedules.py`, forward_backward_pipelining_with_interleaving.
    """
    return pp <= size <= microbatches and not 0 < microbatches % size < pp


def group_size(shape: Shape) -> int:
    """Micro batches that go through one virtual stage in a row. Source: as `rounds`.

    Raises:
        SpecError: The group given deadlocks. Source: as `group_runs`.
    """
    pp, m, group = shape.pp, shape.num_microbatches, shape.microbatch_group_size
    if group is None:
        return m // max(1, m // pp)
    if not group_runs(group, pp, m):
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


def interleaved_warmup(pp: int, vpp: int, group: int) -> IntColumn:
    """Forward passes of each rank before its first backward.

    Source: Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2; the group as in Megatron
    Core `schedules.py`, get_pp_rank_microbatches.
    """
    return 2 * (pp - 1 - np.arange(pp)) + (vpp - 1) * group


def interleaved_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank."""
    group = group_size(shape)
    first = interleaved_warmup(shape.pp, shape.vpp, group)
    return one_forward_one_backward(chunked_order(shape, group), first, shape)


def interleaved_held(
    num_microbatches: int, layers: IntMatrix, size: int | None = None
) -> FloatColumn:
    """Passes in flight, in groups of a size; null: of pp.

    Source: as `alternating_held`; behind a smaller last group nothing repeats.
    """
    pp, vpp = layers.shape
    shape = Shape(pp, vpp, num_microbatches, size)
    group = group_size(shape)
    alike = num_microbatches if size and num_microbatches % group else group
    return alternating_held(
        chunked_order(shape, group), interleaved_warmup(pp, vpp, group), layers, alike
    )


INTERLEAVED = Schedule(
    interleaved_program,
    interleaved_held,
    whole_backward_bound,
    rounds_to_fill=2,
    least_vpp=2,
    most_vpp=sys.maxsize,
    rules=(WHOLE_GROUPS,),
    options=frozenset({"microbatch_group_size"}),
    repeats=True,
    stage_by_stage="in one group",
)
"""Interleaved 1F1B: each rank walks its `vpp` virtual stages in groups of micro batches."""


def by_chunks(shape: Shape) -> PassOrder:
    """Chunks of each micro batch forward, then backward from its last.

    Source: Sun et al., Seq1F1B, arXiv:2406.03488, section 3.2.
    """
    k = shape.sequence_chunks
    forward = np.arange(shape.num_microbatches * k)
    backward = forward - forward % k + k - 1 - forward % k
    chunk = np.zeros_like(forward)
    return PassOrder(chunk, forward, chunk, backward)


def sequence_chunked_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank. Source: as `by_chunks`; a rank warms up with p - r - 2 + chunks passes."""
    warmup = shape.pp - 2 - np.arange(shape.pp) + shape.sequence_chunks
    return one_forward_one_backward(by_chunks(shape), warmup, shape)


def causal_shares(sequence_chunks: int, attention_share: float) -> FloatColumn:
    """Share of a whole pass that each chunk of a causal sequence takes; sums to 1.

    Of k equal chunks, chunk j attends to j chunks and half of itself: (2 j + 1) / k^2 of the
    attention. `attention_share` is the attention's share of the pass.
    Source: derived; Sun et al., Seq1F1B, arXiv:2406.03488, section 3.4.
    """
    k, chunk = sequence_chunks, np.arange(sequence_chunks)
    return np.asarray((1 - attention_share) / k + attention_share * (2 * chunk + 1) / k**2)


SEQUENCE_CHUNKED = Schedule(
    sequence_chunked_program,
    held_by(sequence_chunked_program),
    whole_backward_bound,
    rounds_to_fill=1,
    options=frozenset({"sequence_chunks"}),
)
"""1F1B of sequence chunks: several passes through a stage for one long sequence.

A micro batch is cut along its sequence. Chunks go forward from the first, because each reads the
keys and values of those before it, and backward from the last. The pipeline fills with chunks,
so bubble and activations shrink with their number."""


def gpipe_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank.

    Source: Huang et al., GPipe, NeurIPS 2019, arXiv:1811.06965, section 2.3.
    """
    m = shape.num_microbatches
    kinds = [int(Op.FORWARD)] * m + [int(Op.WHOLE)] * m
    return single_stage_program([kinds] * shape.pp, m)


GPIPE = Schedule(
    gpipe_program,
    held_throughout,
    whole_backward_bound,
    rounds_to_fill=ALL_MICROBATCHES,
    forward_first=True,
)
"""GPipe: all forward passes, then all backward passes."""


def breadth_first_program(shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank; the backward pass takes micro batches from the last.

    Source: Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, arXiv:2211.05953, section
    4; the order of backward passes as torch.distributed.pipelining, ScheduleLoopedBFS.
    """
    m = shape.num_microbatches
    order = chunked_order(shape, m, reverse=True)
    return one_forward_one_backward(order, np.full(shape.pp, m * shape.vpp), shape)


BREADTH_FIRST = Schedule(
    breadth_first_program,
    held_throughout,
    whole_backward_bound,
    rounds_to_fill=ALL_MICROBATCHES,
    least_vpp=2,
    most_vpp=sys.maxsize,
    forward_first=True,
    stage_by_stage="always",
)
"""Breadth-first: every micro batch through one virtual stage before the next stage.

It holds all micro batches, but gathers the weights of a virtual stage once, and their gradients
are done early: a schedule for sharded weights."""
