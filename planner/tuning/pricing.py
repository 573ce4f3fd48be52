"""Contenders as the cost model prices them, and how that moves with every scalar of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.measured import SCALARS, ScalarName, processes_per_core, varied
from trainplan.costmodel.step import simulated
from trainplan.planner.tuning.contenders import Contenders, Group
from trainplan.planner.tuning.shared_cores import shared_core_seconds


@dataclass(frozen=True, slots=True)
class Prices:
    """Of every contender."""

    log_seconds: FloatColumn
    used_bytes: FloatColumn
    """Device memory of the fullest rank."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Prices near a point of the scalars."""

    prices: Prices
    at: FloatColumn
    """Scalars by `SCALARS`."""
    slopes: FloatColumn
    """Of log seconds, shape (contender, scalar)."""


def prices(
    contenders: Contenders, changes: Mapping[ScalarName, float], measured: Measured = NOTHING
) -> Prices:
    """Of every contender on a machine with changed scalars, each schedule simulated."""
    parts = [_of_group(group, changes, measured) for group in contenders.groups]
    return Prices(
        np.log(np.concatenate([part[0] for part in parts])),
        np.concatenate([part[1] for part in parts]),
    )


def _of_group(
    group: Group, changes: Mapping[ScalarName, float], measured: Measured
) -> tuple[FloatColumn, FloatColumn]:
    machine = varied(machine_for(group.job, measured), changes)
    rows = context_of(group.job, machine).with_table(group.table)
    found, contention = simulated(rows, 0.0), processes_per_core(measured.profile)
    if contention <= 1:
        return found.step_time_s, found.peak_reserved_bytes
    seconds = np.maximum(found.step_time_s, shared_core_seconds(rows, contention))
    return seconds, found.peak_reserved_bytes


def linear(
    contenders: Contenders,
    here: Prices,
    at: FloatColumn,
    spreads: FloatColumn,
    measured: Measured = NOTHING,
) -> Linear:
    """Prices `here`, at a point, and slopes over one spread to either side of it.

    Source: derived; a difference over a spread is the slope that the overlap of compute and
    traffic has in the mean over likely machines, where a derivative would be that of one side.
    """

    def log_seconds(point: FloatColumn) -> FloatColumn:
        return prices(contenders, changes_at(point), measured).log_seconds

    columns = []
    for place, spread in enumerate(spreads.tolist()):
        move = np.zeros(len(SCALARS))
        move[place] = spread
        least = at - move
        least[-1] = max(0.0, least[-1])  # seconds are never taken away
        rise = log_seconds(at + move) - log_seconds(least)
        columns.append(rise / max(float((at + move - least)[place]), 1e-12))
    return Linear(here, at, np.stack(columns, axis=1))


def changes_at(point: FloatColumn) -> dict[ScalarName, float]:
    """A vector of scalars by name."""
    return dict(zip(SCALARS, point.tolist(), strict=True))
