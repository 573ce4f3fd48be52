"""Splits of a layout on the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntMatrix, objects
from trainplan.costmodel.layout import StageSpec
from trainplan.costmodel.step import Priced, price
from trainplan.costmodel.step.estimate import with_overhead
from trainplan.costmodel.step.heterogeneous import price_heterogeneous, simulate_heterogeneous
from trainplan.costmodel.step.timelines import SimulatedTable, simulate, virtual_stage_seconds
from trainplan.costmodel.timeline import Paths, StageSeconds, critical_paths
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
    simulated = simulate_stages(problem, [problem.stages(one) for one in layers.tolist()])
    return replace(simulated, fits=simulated.fits & problem.allows(layers))


def simulate_stages(
    problem: StageProblem, choices: Sequence[tuple[StageSpec, ...]]
) -> SimulatedSplits:
    """Run the schedules of a layout with some stages; whether one fits is what an estimate says."""
    many = problem.table.take(np.zeros(len(choices), dtype=np.int64))
    table = least_offloaded(problem, many.replaced(stages=objects(choices)))
    priced, simulated, seconds, p2p = _run(problem, problem.with_table(table))
    whole = simulated.with_messages + simulated.dp_comm + priced.update
    ranks = problem.shape[0]
    tails = priced.traffic[:ranks].T
    used = priced.memory.reserved[:ranks] + priced.memory.outside_bytes
    return SimulatedSplits(
        with_overhead(problem.machine, whole),
        np.asarray((used <= problem.rank_memory).all(axis=0)),
        critical_paths(problem.schedule, problem.shape, seconds, p2p, tails),
        table.offload_optimizer,
    )


def _run(
    problem: StageProblem, candidates: Candidates
) -> tuple[Priced, SimulatedTable, StageSeconds, FloatColumn]:
    """Splits of a layout priced and run, the seconds of their stages and of their messages."""
    if len(problem.parts) > 1:
        mixed = price_heterogeneous(candidates)
        one = mixed.pipelines[0]
        return mixed.whole, simulate_heterogeneous(mixed), one.seconds, one.p2p
    priced = price(candidates, merged=False)
    seconds = virtual_stage_seconds(priced, np.arange(len(candidates.table)))
    return priced, simulate(priced), seconds, priced.seconds.p2p
