"""Splits of a layout on the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.schedules.timeline.critical_path import Paths, critical_paths
from trainplan.costmodel.spec import StageSpec
from trainplan.costmodel.spec.layout import stage_specs
from trainplan.costmodel.step import price
from trainplan.costmodel.step.estimate import with_overhead
from trainplan.costmodel.step.timelines import simulate, virtual_stage_seconds
from trainplan.planner.stages.problem.offload import least_offloaded
from trainplan.planner.stages.problem.problem import StageProblem


@dataclass(frozen=True, slots=True)
class SimulatedSplits:
    """Splits on the clock."""

    step_time_s: FloatColumn
    fits: BoolColumn
    """In memory, and among the splits the user allows."""
    paths: Paths
    offload: FloatColumn
    """Fraction of the optimizer that each offloads: the least with which it fits."""


def simulate_splits(problem: StageProblem, layers: IntMatrix) -> SimulatedSplits:
    """Run the schedules of some splits; `layers` has shape (split, stage)."""
    simulated = simulate_stages(problem, [stage_specs(one) for one in layers.tolist()])
    return replace(simulated, fits=simulated.fits & problem.allows(layers))


def simulate_stages(
    problem: StageProblem, choices: Sequence[tuple[StageSpec, ...]]
) -> SimulatedSplits:
    """Run the schedules of a layout with some stages; whether one fits is what an estimate says."""
    many = problem.table.take(np.zeros(len(choices), dtype=np.int64))
    table = least_offloaded(problem, many.replaced(stages=objects(choices)))
    priced = price(problem.with_table(table), merged=False)
    simulated = simulate(priced)
    whole = simulated.with_messages + simulated.dp_comm + priced.update
    seconds = virtual_stage_seconds(priced, np.arange(len(choices)))
    tails = priced.traffic[: problem.shape[0]].T
    paths = critical_paths(problem.schedule, problem.shape, seconds, priced.seconds.p2p, tails)
    return SimulatedSplits(
        with_overhead(problem.machine, whole),
        np.asarray(priced.memory.used <= problem.memory_bytes),
        paths,
        table.offload_optimizer,
    )
