"""Which layouts some split of the layers may fit into memory, for many layouts at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.block_costs import EMBEDDING, HEAD, BlockCosts, layer_counts
from costmodel.estimate import Priced
from costmodel.memory.overheads import RESERVE_FACTOR
from costmodel.schedules import SCHEDULES
from costmodel.schedules.program import placed
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
from costmodel.table import FULL, UNIFORM, BoolColumn, FloatColumn, IntColumn, distinct
from planner.split_problem import fullest_moment

ROUNDING = 1e-9
"""Of a layer; rounding alone must refuse nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rank may use."""

    memory_bytes: float
    pipeline_s: float
    """Seconds of the pipelined part of a step."""


def may_fit(
    job: Job, priced: Priced, costs: BlockCosts, rows: IntColumn, limits: Limits
) -> BoolColumn:
    """Which of some rows are not refused: have the ranks bytes and seconds for all layers?

    A rank with n layers runs them for every micro batch and holds their states, and of each pass in
    flight at least what n layers keep, spread over its chunks: with chunks that differ by one, no
    less than if all had n / vpp less one.
    Source: derived.
    """
    table, result = priced.table.take(rows), np.zeros(len(rows), dtype=bool)
    microbatches = priced.microbatches[rows]
    first, shape = distinct(table.schedule, table.pp, table.vpp, microbatches)
    for number in range(len(first)):
        some = np.flatnonzero(shape == number)
        result[some] = True
        for kind, layers in layer_counts(job):
            most = most_layers(priced, costs, rows[some], limits, kind).clip(0, layers)
            result[some] &= most.sum(axis=0) >= layers
    return result


def most_layers(
    priced: Priced, costs: BlockCosts, rows: IntColumn, limits: Limits, kind: int
) -> FloatColumn:
    """Layers of one kind that each rank has bytes and seconds for; (rank, row).

    The rows have one pipeline shape. Source: as `may_fit`.
    """
    table, one = priced.table, int(rows[0])
    name, m = SCHEDULE_NAMES[table.schedule[one]], int(priced.microbatches[one])
    pp, vpp = int(table.pp[one]), int(table.vpp[one])
    passes = fullest_moment(name, pp, vpp, min(m, SCHEDULES[name].rounds_to_fill * pp)).sum(axis=1)
    stage_of = placed(SCHEDULES[name].placement, pp, vpp)
    ends = np.stack([(stage_of == 0).any(axis=1), (stage_of == stage_of.max()).any(axis=1)])
    room = _room(priced, costs, rows, ends, limits.memory_bytes)
    seconds = limits.pipeline_s / m - _end_seconds(costs, rows, ends)
    kept = passes[:, None] * _kept_bytes(priced, costs, kind, rows)
    each = costs.state_bytes[kind, rows] + kept / vpp
    held = np.floor((room + (vpp - 1) / vpp * kept) / each + ROUNDING)
    run = np.floor(seconds / _layer_seconds(priced, costs, kind, rows) + ROUNDING)
    return np.asarray(np.minimum(held, run))


def _room(
    priced: Priced, costs: BlockCosts, rows: IntColumn, ends: BoolColumn, memory_bytes: float
) -> FloatColumn:
    """Bytes that each rank has for its layers and their activations; (rank, row)."""
    allocated = (memory_bytes - priced.memory.outside_bytes) / RESERVE_FACTOR
    transients = priced.memory.transients[:, rows].min(axis=0)
    state = costs.state_bytes[[EMBEDDING, HEAD]][:, rows]
    return np.asarray(allocated - transients - ends.astype(np.float64).T @ state)


def _end_seconds(costs: BlockCosts, rows: IntColumn, ends: BoolColumn) -> FloatColumn:
    """Both passes of embedding and head on each rank; (rank, row). Source: derived."""
    pair = (costs.forward + costs.backward)[[EMBEDDING, HEAD]][:, rows]
    return np.asarray(ends.astype(np.float64).T @ pair)


def _layer_seconds(priced: Priced, costs: BlockCosts, kind: int, rows: IntColumn) -> FloatColumn:
    """Both passes of one layer, repeated where all layers are. Source: derived."""
    uniform = priced.table.recompute_method[rows] == UNIFORM
    pair = (costs.forward + costs.backward)[kind, rows]
    return np.asarray(pair + np.where(uniform, costs.again[kind, rows], 0.0))


def _kept_bytes(priced: Priced, costs: BlockCosts, kind: int, rows: IntColumn) -> FloatColumn:
    """Activations of one layer and micro batch at least, under each row's recomputation."""
    table = priced.table
    full = table.recompute[rows] == FULL
    uniform = full & (table.recompute_method[rows] == UNIFORM)
    groups = np.where(uniform, np.maximum(1, table.recompute_num_layers[rows]), 1)
    return np.where(full, costs.input_bytes[rows] / groups, costs.kept_bytes[kind, rows])
