"""Long pipelines in short runs: the end of every rank's last pass, for many candidates at once."""

from functools import lru_cache
from math import lcm

import numpy as np

from trainplan.costmodel.columns import (
    BoolColumn,
    FloatColumn,
    FloatMatrix,
    IntColumn,
    IntMatrix,
    RowRanks,
)
from trainplan.costmodel.program import EQUAL, Op, Program, RelativeSeconds, Waves, waves_of
from trainplan.costmodel.schedules import SCHEDULES, program
from trainplan.costmodel.timeline.clock import StageSeconds, place_ends
from trainplan.costmodel.timeline.powers import Cut, cut_of


@lru_cache(maxsize=64)
def named_program(
    schedule: str, pp: int, vpp: int, num_microbatches: int, relative: RelativeSeconds
) -> Program:
    """Ops of a named schedule; making them takes longer than most uses of them."""
    return program(schedule, pp, vpp, num_microbatches, relative)


@lru_cache(maxsize=256)
def waves(
    schedule: str, pp: int, vpp: int, num_microbatches: int, relative: RelativeSeconds = EQUAL
) -> Waves:
    """Waves of a named schedule. Source: as `waves_of`."""
    return waves_of(named_program(schedule, pp, vpp, num_microbatches, relative))


UNITS = 48
"""Whole units that a forward and a backward pass take together where durations are compared.

Source: assumed; 2 % of a pass, less than the model knows of it.
"""


PATTERN_UNITS = 16
"""As `UNITS`, for schedules that repeat a pattern: fewer patterns serve more layouts.

Source: measured on V-Half and V-Min, p = 4 and 8, 24 sets of durations: orders made for 16 and for
48 units end within 0.1 % of each other on average.
"""


def units_of(schedule: str) -> int:
    """Units of a forward and a backward pass that the order of a schedule is made for."""
    return PATTERN_UNITS if SCHEDULES[schedule].repeats else UNITS


def relative_seconds(
    seconds: StageSeconds, p2p: FloatColumn, units: int = UNITS
) -> list[RelativeSeconds]:
    """Durations of each candidate's mean stage and message, rounded to a common unit."""
    parts = [seconds.forward, seconds.backward - seconds.weight, seconds.weight]
    mean = np.stack([*(part.mean(axis=1) for part in parts), p2p], axis=1)
    unit = mean[:, :3].sum(axis=1, keepdims=True) / units
    whole = np.rint(mean / np.where(unit > 0, unit, 1.0)).astype(np.int64)
    return [RelativeSeconds(*row) for row in whole.tolist()]


SHORTEST_CYCLES = 6
"""Groups of `pp` micro batches in the first shortened run: warm-up, three equal cycles, drain.

Source: the warm-up of any rank is shorter than two cycles, so of six cycles at least four lie
behind it: three equal ones and the one in which the drain begins.
"""
PERIODIC_TOLERANCE = 1e-11
"""Largest relative difference of two cycles that count as equal: rounding, nothing more."""


def rank_end_seconds(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    seconds: StageSeconds,
    *,
    p2p: FloatColumn,
    relative: RelativeSeconds = EQUAL,
) -> RowRanks:
    """When each rank ends its last pass, under a schedule of shape (pp, vpp).

    Under a schedule that repeats, between warm-up and drain every rank runs the same passes, `pp`
    micro batches a cycle (of several virtual stages, where that is the size of their groups); under
    one that adapts, most often some other number, which a shortened run shows. The
    end of an op is a maximum of sums, so once two cycles in a row end later by one constant
    everywhere, every further cycle does too: a shorter run and that constant give the whole. Where
    they do not, powers of one cycle do (`powers`). Each row settles by itself, so it is the same
    whatever rows are beside it.
    Source: max-plus linear systems are homogeneous (Baccelli et al., Synchronization and
    Linearity, 1992, section 3.7); tested against the full run.
    """
    (pp, vpp), left, rank_ends = shape, np.arange(len(p2p)), np.empty((len(p2p), shape[0]))
    rest = microbatches % pp
    short = SHORTEST_CYCLES * pp + rest if _repeats(schedule, shape, microbatches) else microbatches
    while short < microbatches and len(left):
        cycle, steady = _steady(schedule, pp, vpp, short, relative)
        if cycle and (microbatches - short) % cycle:
            short += (microbatches - short) % lcm(cycle, pp)
            continue
        if cycle:
            order = waves(schedule, pp, vpp, short, relative)
            ends = place_ends(order, _some(seconds, left), p2p[left])
            period, settled = _period(order.place[steady], ends)
            times = (microbatches - short) // cycle
            last = _last_ops(schedule, shape, short, order.place, relative)
            rank_ends[left] = ends[last].T + (times * period)[:, None]
            left, ends = left[~settled], ends[:, ~settled]
            cut = _cut(order, steady, pp) if len(left) else None
            if cut:
                rank_ends[left] = cut.ends_after(times, _some(seconds, left), p2p[left], ends, last)
                return rank_ends
        short = 2 * (short - rest) + rest
    if len(left):
        order = waves(schedule, pp, vpp, microbatches, relative)
        ends = place_ends(order, _some(seconds, left), p2p[left])
        rank_ends[left] = ends[_last_ops(schedule, shape, microbatches, order.place, relative)].T
    return rank_ends


def _cut(order: Waves, steady: IntMatrix, pp: int) -> Cut | None:
    """A step cut around the second of its three cycles alike, as `_steady` gives them."""
    third = steady[2].reshape(pp, -1)[:, 0]
    before, cycle = order.place[steady[:2]]
    row = order.op // (len(order.place) // pp)
    return cut_of(order, before, cycle, order.op >= third[row], row)


def _some(seconds: StageSeconds, rows: IntColumn) -> StageSeconds:
    """Seconds of some rows; the very same of all."""
    return seconds if len(rows) == len(seconds.forward) else seconds.take(rows)


def _repeats(schedule: str, shape: tuple[int, int], microbatches: int) -> bool:
    """Is it a step of whole groups, or of a schedule without groups?"""
    (pp, vpp), one = shape, SCHEDULES[schedule]
    grouped = vpp > 1 and one.placement == "loop"
    return (one.repeats or one.adapts) and (not grouped or microbatches % pp == 0)


@lru_cache(maxsize=256)
def _last_positions(
    schedule: str, pp: int, vpp: int, microbatches: int, relative: RelativeSeconds
) -> IntColumn:
    """Flat index of the last op of every rank."""
    ops = named_program(schedule, pp, vpp, microbatches, relative)
    return np.asarray(np.arange(pp) * ops.kind.shape[1] + ops.lengths - 1)


def _last_ops(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    place: IntColumn,
    relative: RelativeSeconds,
) -> IntColumn:
    """Place of the last op of every rank; `place` is as in `Waves`."""
    return np.asarray(place[_last_positions(schedule, *shape, microbatches, relative)])


def _period(steady: IntMatrix, ends: FloatMatrix) -> tuple[FloatColumn, BoolColumn]:
    """Seconds of one steady cycle of each candidate, and whether it has settled.

    `steady` has places, as `ends` of `place_ends`.
    """
    candidates = ends.shape[1]
    if not steady.size:
        return np.zeros(candidates), np.zeros(candidates, dtype=bool)
    shifts = np.diff(ends[steady], axis=0).reshape(-1, candidates)
    low, high = shifts.min(axis=0), shifts.max(axis=0)
    return (low + high) / 2, high - low <= PERIODIC_TOLERANCE * ends.max(axis=0)


@lru_cache(maxsize=256)
def _steady(
    schedule: str, pp: int, vpp: int, microbatches: int, relative: RelativeSeconds
) -> tuple[int, IntMatrix]:
    """Micro batches of a cycle, and flat indices of the ops of the last three alike on all ranks.

    Shape (cycle, op); 0 and empty for none. On every rank cycle k starts with the first backward
    pass of micro batch k pp, or where it lasts longer, of another one. Cycles are alike where their
    ops differ in nothing but their micro batches. Those of an order that adapts may be of any
    length of at least `pp`, and also last as long under the durations that the order is made for.
    """
    ops = named_program(schedule, pp, vpp, microbatches, relative)
    positions, rank = ops.kind.shape[1], np.arange(pp)[:, None]
    backward = (ops.kind == Op.BACKWARD) | (ops.kind == Op.WHOLE)
    turns = np.full((pp, microbatches), positions)
    row, position = np.nonzero(backward)
    np.minimum.at(turns, (row, ops.microbatch[row, position]), position)
    what = ops.kind * pp * vpp + ops.stage
    if ops.joint is not None:
        what = 2 * what + ops.joint
    adapts = SCHEDULES[schedule].adapts
    for cycle in range(pp, microbatches // 4 + 1 if adapts else pp + 1):
        length = positions // microbatches * cycle
        for first in turns[:, ::pp].T[:0:-1]:
            if first.max() + 3 * length > positions:
                continue
            one = what[0, first[0] : first[0] + 2 * length]
            if not np.array_equal(one[:length], one[length:]):
                continue
            at = first[:, None] + np.arange(3 * length)[None, :]
            here, microbatch = (m[rank, at].reshape(pp, 3, length) for m in (what, ops.microbatch))
            same = (here == here[:, :1]).all() and (np.diff(microbatch, axis=1) == cycle).all()
            steady = (rank * positions + at).reshape(pp, 3, length).swapaxes(0, 1).reshape(3, -1)
            if same and (not adapts or _lasts(schedule, (pp, vpp), microbatches, relative, steady)):
                return cycle, np.asarray(steady)
    return 0, np.zeros((0, 0), dtype=np.int64)


def _lasts(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    relative: RelativeSeconds,
    steady: IntMatrix,
) -> bool:
    """Does each of some cycles take as long as the one before, under the durations of the order?"""
    order, one = waves(schedule, *shape, microbatches, relative), np.ones((1, shape[0] * shape[1]))
    weight = relative.weight * one
    seconds = StageSeconds(relative.forward * one, relative.backward * one + weight, weight)
    ends = place_ends(order, seconds, np.array([float(relative.p2p)]))
    return bool(_period(order.place[steady], ends)[1][0])
