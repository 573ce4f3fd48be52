"""Durations in small whole numbers, which solvers of whole numbers need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose

import numpy as np

from trainplan.costmodel.timeline import StageSeconds
from trainplan.planner.solvers.schedules.instance import Instance, instance

LARGEST = 64
"""Whole numbers up to here count as small. Source: assumed; a proof takes longer with larger ones,
about twice as long at 200."""
ROUGHLY = 18
"""Units of the mean F, B and W together where there is no common unit. Source: measured, as
docs/decisions/0011; finer units take longer and find the same order."""


@dataclass(frozen=True, slots=True)
class InUnits:
    """An instance whose durations are whole numbers of a unit."""

    instance: Instance
    unit: float
    """Seconds."""
    exact: bool
    """Are the durations those of the problem? Otherwise they are rounded."""


def in_units(of: Instance) -> InUnits:
    """The instance in the largest common unit of its durations, or in a rough one."""
    values = [value for row in of.durations for value in row] + [of.p2p]
    common = common_unit([value for value in values if value > 0])
    if common is not None:
        return InUnits(_divided(of, common, 0.0), common, exact=True)
    return InUnits(_divided(of, rough_unit(of), 1.0), rough_unit(of), exact=False)


def in_positive_units(of: Instance) -> Instance:
    """The instance in such a unit; what takes no time takes one, so that no two ops coincide."""
    units = in_units(of)
    return _divided(of, units.unit, 1.0)


def rough_unit(of: Instance) -> float:
    """A small part of a stage's mean passes, in seconds."""
    return sum(sum(row) for row in of.durations) / of.num_stages / ROUGHLY


def common_unit(values: list[float]) -> float | None:
    """The largest number that all values are small whole multiples of, if there is one."""
    if not values:
        return 1.0
    least, most = min(values), max(values)
    for parts in range(1, LARGEST + 1):
        unit = least / parts
        if most / unit > LARGEST + 0.5:
            return None
        if all(isclose(value / unit, round(value / unit), rel_tol=1e-9) for value in values):
            return unit
    return None


def _divided(of: Instance, unit: float, least: float) -> Instance:
    """Whole durations, of an op at `least`."""
    forward, backward, weight = (
        np.array([np.maximum(least, np.rint(np.array(row) / unit))]) for row in of.durations
    )
    seconds = StageSeconds(forward, backward + weight, weight)
    problem = replace(of.problem, seconds=seconds, p2p=float(np.rint(of.p2p / unit)))
    return instance(problem, of.placement)
