"""Predictions of the fitted rows under other parameters, and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial

import numpy as np
from fit_parameters import constants_at, sustained
from fit_rows import ATTENTION_PRIOR, FloatColumn, Pair, Row, speed_key

from trainplan.costmodel import catalog
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import Machine, hardware, machine_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.costmodel.validate.cases.cases import Case

STEP = 0.04
"""Change of a logarithm for the numerical derivative."""


EXPERTS = ("expert_", "permute_", "alltoall_", "dispatch_", "host_moe", "host_backward_moe")
"""How the names of constants begin that no dense model has a use for."""

_machine_of = cache(machine_of)


def _machine(case: Case, theta: Mapping[str, float], left_out: str | None) -> Machine:
    """The machine of a run with the parameters in place of the catalog's values."""
    machine = _machine_of(case.job.cluster, case.job.training.precision)
    gpu, precision = speed_key(case)
    half = "tf32" if precision == "tf32" else "bf16"
    known = hardware.known_of(case.job.cluster.groups[0], None)
    clock = hardware.powered_clock(known, catalog.gpu(gpu))
    half_speed = clock * sustained(theta, gpu, half, left_out)
    slower = hardware.sustained(known, half) / half_speed
    linear_speed = clock * sustained(theta, gpu, precision, left_out)
    linear_slower = hardware.sustained(known, precision) / linear_speed
    architecture = catalog.gpu(gpu).architecture
    attention = ATTENTION_PRIOR[architecture] * math.exp(theta.get(f"attention {architecture}", 0))
    return replace(
        machine,
        constants=constants_at(theta),
        half=replace(machine.half, flop_factor=machine.half.flop_factor * slower),
        linear=replace(machine.linear, flop_factor=machine.linear.flop_factor * linear_slower),
        attention_max_efficiency=attention * half_speed,
    )


def log_step(
    case: Case, theta: Mapping[str, float], *, simulate: bool, left_out: str | None = None
) -> float:
    """Logarithm of the predicted step time: simulated, or its closed-form bound."""
    context = context_of(case.job, _machine(case, theta, left_out))
    candidates = context.with_table(LayoutTable.of([case.layout]))
    seconds = step_seconds(candidates) if simulate else price(candidates).step_seconds
    return math.log(float(seconds[0]))


def log_steps(
    rows: Sequence[Row],
    theta: Mapping[str, float],
    *,
    simulate: bool = True,
    left_out: str | None = None,
) -> FloatColumn:
    """Of all rows; equal layouts are priced once."""
    seen: dict[str, float] = {}
    for row in rows:
        if row.key not in seen:
            seen[row.key] = log_step(row.case, theta, simulate=simulate, left_out=left_out)
    return np.array([seen[row.key] for row in rows])


def residuals(
    rows: Sequence[Row], theta: Mapping[str, float], left_out: str | None = None
) -> FloatColumn:
    """log(predicted / measured) of all rows."""
    measured = np.log([row.run.measured.step_time_s or 1.0 for row in rows])
    return log_steps(rows, theta, left_out=left_out) - measured


def pair_residuals(pairs: Sequence[Pair], theta: Mapping[str, float]) -> FloatColumn:
    """log(predicted / measured) of the ratio of two steps, of all pairs."""
    first, second = (
        log_steps([getattr(pair, name) for pair in pairs], theta) for name in ("base", "other")
    )
    return second - first - np.array([pair.log_ratio for pair in pairs])


def pair_slope(
    pairs: Sequence[Pair], names: Sequence[str], theta: Mapping[str, float]
) -> FloatColumn:
    """Derivative of the ratio of every pair by every parameter."""
    first, second = (
        jacobian([getattr(pair, name) for pair in pairs], names, theta)
        for name in ("base", "other")
    )
    return second - first


def _touches(name: str, row: Row) -> bool:
    """Can a parameter change the prediction of a row at all?"""
    words = name.split()
    gpu, precision = speed_key(row.case)
    architecture = catalog.gpu(gpu).architecture
    if words[0] == "speed":
        return words[1] == gpu and words[2] in (precision, "bf16")
    if words[0] in ("architecture", "attention"):
        return words[1] == architecture
    return row.case.job.model.moe is not None or not name.startswith(EXPERTS)


def _derivative(
    name: str, rows: Sequence[Row], theta: Mapping[str, float], at: FloatColumn
) -> FloatColumn:
    column = np.zeros(len(rows))
    touched = [i for i, row in enumerate(rows) if _touches(name, row)]
    moved = {**theta, name: theta[name] + STEP}
    some = log_steps([rows[i] for i in touched], moved, simulate=False)
    column[touched] = (some - at[touched]) / STEP
    return column


def jacobian(rows: Sequence[Row], names: Sequence[str], theta: Mapping[str, float]) -> FloatColumn:
    """Derivative of every residual by every parameter, of the bound of the step time."""
    at = log_steps(rows, theta, simulate=False)
    with ProcessPoolExecutor() as pool:
        columns = pool.map(partial(_derivative, rows=rows, theta=theta, at=at), names)
        return np.stack(list(columns), axis=1)
