"""Published runs predicted by fits that never saw their source, and how scalars move them."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "accuracy"))

from fit import fit
from fit_predict import residuals
from fit_rows import Row, strict_rows

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import Machine, machine_of
from trainplan.costmodel.measured.varied import SCALARS, ScalarName, varied
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.tuning.alike import features

FloatColumn = NDArray[np.float64]
CHANGE = 0.1
"""Of a scalar to either side, log units, for a slope."""
OTHER_JOB = 2.0
"""Steps between two layouts of unlike jobs, beside those between the layouts."""


@dataclass(frozen=True)
class Group:
    """Runs of one source on one machine and software."""

    source: str
    off: FloatColumn
    """log(measured / predicted) by a fit without the source."""
    slopes: FloatColumn
    """Of the logarithm of the step, by run and scalar."""
    steps: FloatColumn
    """Between every two layouts."""
    same: FloatColumn
    """1 where two runs have one layout."""


@dataclass(frozen=True)
class Residuals:
    """log(predicted / measured) of the strict runs."""

    rows: list[Row]
    left_out: FloatColumn
    """By fits that never saw the source."""
    fitted: FloatColumn
    """By the fit of all."""


def left_out() -> Residuals:
    """All strict runs, predicted with and without their source."""
    rows = strict_rows()
    theta, problem = fit(rows)
    off = np.zeros(len(rows))
    for source in sorted({row.source for row in rows}):
        keep = np.array([row.source != source for row in rows])
        at = dict(zip(theta, problem.solve(keep), strict=True))
        some = np.flatnonzero(~keep)
        off[some] = residuals([rows[i] for i in some], at, source)
    return Residuals(rows, off, problem.residual)


def groups(known: Residuals) -> list[Group]:
    """The runs by source, GPU, precision and runtime."""
    rows, off = known.rows, -known.left_out
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        job = row.case.job
        gpu = job.cluster.groups[0].gpu
        members[row.source, gpu, job.training.precision, job.runtime].append(index)
    return [_group(key[0], [rows[i] for i in some], off[some]) for key, some in members.items()]


def _group(source: str, rows: list[Row], off: FloatColumn) -> Group:
    places = np.concatenate(
        [features(row.case.job, LayoutTable.of([row.case.layout])) for row in rows]
    )
    jobs = np.array([row.group for row in rows])
    keys = np.array([row.key for row in rows])
    square = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    square += OTHER_JOB**2 * (jobs[:, None] != jobs[None])
    same = (keys[:, None] == keys[None]).astype(float)
    slopes = np.array([_slopes(row) for row in rows])
    return Group(source, off, slopes, np.sqrt(square), same)


def _slopes(row: Row) -> list[float]:
    job, table = row.case.job, LayoutTable.of([row.case.layout])
    machine = machine_of(job.cluster, job.training.precision)

    def seconds(other: Machine) -> float:
        return float(step_seconds(context_of(job, other).with_table(table))[0])

    def slope(name: ScalarName) -> float:
        if name == "fixed_seconds":
            return 1 / seconds(machine)
        ends = [math.log(seconds(varied(machine, {name: x}))) for x in (CHANGE, -CHANGE)]
        return (ends[0] - ends[1]) / (2 * CHANGE)

    return [slope(name) for name in SCALARS]
