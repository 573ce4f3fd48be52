"""Long pipelines in short runs: the end of every rank's last pass, for many candidates at once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from costmodel.schedules import SCHEDULES, program
from costmodel.schedules.dependencies import Wave, waves_of
from costmodel.schedules.program import EQUAL, Op, RelativeSeconds
from costmodel.table import FloatColumn, IntColumn
from costmodel.timeline import FloatMatrix, StageSeconds, op_ends


@lru_cache(maxsize=256)
def waves(
    schedule: str, pp: int, vpp: int, num_microbatches: int, relative: RelativeSeconds = EQUAL
) -> tuple[Wave, ...]:
    """Waves of a named schedule. Source: as `waves_of`."""
    return waves_of(program(schedule, pp, vpp, num_microbatches, relative))


UNITS = 48
"""Whole units that a forward and a backward pass take together where durations are compared.

Source: assumed; 2 % of a pass, less than the model knows of it.
"""


def relative_seconds(seconds: StageSeconds, p2p: FloatColumn) -> list[RelativeSeconds]:
    """Durations of each candidate's mean stage and message, rounded to a common unit."""
    parts = [seconds.forward, seconds.backward - seconds.weight, seconds.weight]
    mean = np.stack([*(part.mean(axis=1) for part in parts), p2p], axis=1)
    unit = mean[:, :3].sum(axis=1, keepdims=True) / UNITS
    whole = np.rint(mean / np.where(unit > 0, unit, 1.0)).astype(np.int64)
    return [RelativeSeconds(*row) for row in whole.tolist()]


SHORTEST_CYCLES = 6
"""Groups of `pp` micro batches in the first shortened run: warm-up, two equal cycles, drain.

Source: derived; the warm-up of any rank is shorter than two cycles.
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
) -> FloatMatrix:
    """When each rank ends its last pass, under a schedule of shape (pp, vpp); (candidate, rank).

    Under a schedule that repeats, between warm-up and drain every rank runs the same passes, `pp`
    micro batches a cycle. The end of an op is a maximum of sums, so once two cycles in a row end
    later by one constant everywhere, every further cycle does too: a shorter run and that constant
    give the whole.
    Source: max-plus linear systems are homogeneous (Baccelli et al., Synchronization and
    Linearity, 1992, section 3.7); tested against the full run.
    """
    pp, vpp = shape
    cycles = SHORTEST_CYCLES
    while SCHEDULES[schedule].repeats and cycles * pp < microbatches:
        short = cycles * pp + microbatches % pp
        ends = op_ends(waves(schedule, pp, vpp, short), seconds, p2p)
        period = _period(schedule, shape, short, ends)
        if period is not None:
            left = (microbatches - short) // pp * period
            return _last_ops(schedule, shape, short, ends) + left[:, None]
        cycles *= 2
    ends = op_ends(waves(schedule, pp, vpp, microbatches, relative), seconds, p2p)
    return _last_ops(schedule, shape, microbatches, ends, relative)


def _last_ops(
    schedule: str,
    shape: tuple[int, int],
    microbatches: int,
    ends: FloatMatrix,
    relative: RelativeSeconds = EQUAL,
) -> FloatMatrix:
    """End of the last op of every rank."""
    _, lengths, positions = _rows(schedule, *shape, microbatches, relative)
    return np.asarray(ends[:, np.arange(len(lengths)) * positions + lengths - 1])


def _period(
    schedule: str, shape: tuple[int, int], microbatches: int, ends: FloatMatrix
) -> FloatColumn | None:
    """Seconds of one steady cycle of each candidate; None while any has not settled."""
    pp, vpp = shape
    warmup, _, positions = _rows(schedule, pp, vpp, microbatches)
    length = positions // microbatches * pp
    count = (positions - 2 * int(warmup.max())) // length
    starts = warmup[:, None] + length * (count - 3) + np.arange(3 * length)[None, :]
    window = ends[:, np.arange(pp)[:, None] * positions + starts]
    cycles = window.reshape(len(ends), pp, 3, length)
    shifts = np.diff(cycles, axis=2).reshape(len(ends), -1)
    low, high = shifts.min(axis=1), shifts.max(axis=1)
    settled = high - low <= PERIODIC_TOLERANCE * ends.max(axis=1)
    return np.asarray((low + high) / 2) if settled.all() else None


@lru_cache(maxsize=256)
def _rows(
    schedule: str, pp: int, vpp: int, microbatches: int, relative: RelativeSeconds = EQUAL
) -> tuple[IntColumn, IntColumn, int]:
    """Forward passes before each rank's first backward, ops of each rank, and of the longest."""
    ops = program(schedule, pp, vpp, microbatches, relative)
    return np.argmax(ops.kind != Op.FORWARD, axis=1), ops.lengths, ops.kind.shape[1]
