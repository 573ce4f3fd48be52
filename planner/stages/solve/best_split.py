"""The best split of a layout's layers into stages: a master problem and a simulation.

The master (`planner.solvers`) finds the split with the smallest lower bound; the simulation runs
its schedule and returns the step time and the critical path. The path is one more row of the
master, so its bound grows until no split can beat the best one seen: that one is optimal under the
simulation itself, not under a stand-in for it. Source: Kelley, The Cutting-Plane Method for Solving
Convex Programs, J. SIAM 8, 1960; finite because a filling is never tried twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn, LayoutTable
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.schedules.timeline.critical_path import Paths, critical_paths
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.costmodel.spec import StageSpec
from trainplan.costmodel.spec.layout import stage_specs
from trainplan.costmodel.step import price
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.costmodel.step.timelines import simulate, virtual_stage_seconds
from trainplan.planner.solvers.layers.assignment import Counts
from trainplan.planner.solvers.layers.milp import solve
from trainplan.planner.space.offload import with_fraction
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.problem.offload import faster_than, least_offloaded
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import ManySplits
from trainplan.planner.stages.solve.enumeration import shorter_splits
from trainplan.planner.stages.solve.master import Master
from trainplan.planner.stages.solve.windows import (
    MOST_STAGES,
    Windows,
    balanced,
    bounds_of_stages,
    stages_of,
    windows,
)
from trainplan.planner.work import Deadline

FEW = 2048
"""Splits that are looked at one by one even where it is enough that none is very fast."""
SIMULATED_AT_ONCE = 8
BOUNDED_AT_ONCE = 1 << 16
"""Virtual stages of splits that are bounded together, so that they stay in a cache."""
MOST_PROGRAMS = 20
"""Integer programs for one layout; its bound stays open where they do not settle it."""


@dataclass(frozen=True, slots=True)
class SimulatedSplits:
    """Splits on the clock."""

    step_time_s: FloatColumn
    fits: BoolColumn
    """In memory, and among the splits the user allows."""
    paths: Paths
    offload: FloatColumn
    """Fraction of the optimizer that each offloads: the least with which it fits."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What is known when the search for a split ends."""

    layers: tuple[int, ...] | None
    """Layers of every stage of the best split below the cutoff."""
    offload: float
    """Fraction of the optimizer that it offloads."""
    step_time_s: float
    """Its step time; infinite without one."""
    lower_bound_s: float
    """No split is faster; where none is faster than the cutoff, at least the cutoff."""
    num_simulated: int
    """Splits whose schedule was run."""
    memory_decides: bool
    """Memory decided something; else a layout that only takes longer has no faster split."""

    def prune(self, cutoff_s: float) -> SplitResult:
        """The same, its split forgotten unless it is faster than the cutoff."""
        if self.step_time_s * EQUALS < cutoff_s:
            return self
        return replace(self, layers=None, step_time_s=np.inf)

    def of(self, table: LayoutTable) -> LayoutTable:
        """The row of a table with the split and what it offloads."""
        assert self.layers is not None
        stages = objects([stage_specs(self.layers)])
        return with_fraction(table, self.offload).replaced(stages=stages)


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


def best_split(
    problem: StageProblem,
    pool: PathPool,
    cutoff_s: float,
    deadline: Deadline,
    target_bound_s: float = np.inf,
) -> SplitResult:
    """The fastest split of a layout that fits and is faster than the cutoff, with its proof.

    It ends early where no split is faster than `target_bound_s`. Without a deadline no integer
    program is asked, which may take half a minute: a layout with very many splits stays open.
    """
    layers = problem.job.model.num_hidden_layers
    settled = SplitResult(None, 0.0, np.inf, cutoff_s, 0, memory_decides=False)
    value = without_overhead(problem.machine, cutoff_s)
    problem = faster_than(problem, value)
    fast = windows(problem, pool.of(problem.pipeline), value, memory=False)
    if fast is None or not fast.count(layers):
        return settled
    window = windows(problem, pool.of(problem.pipeline), value, within=fast, in_time=True)
    if window is None or not window.count(layers):
        return replace(settled, memory_decides=True)
    if target_bound_s < cutoff_s and window.count(layers) > FEW:
        return best_split(problem, pool, target_bound_s, deadline)
    decides = problem.offloads is not None or not window.equals(fast)
    best = replace(settled, lower_bound_s=0.0, memory_decides=decides)
    if window.count(layers) * problem.num_stages > BOUNDED_AT_ONCE:
        best = _with_simulated(problem, pool, stages_of(problem, balanced(problem)), best).prune(
            cutoff_s
        )
        cutoff_s = min(cutoff_s, best.step_time_s)
        value = without_overhead(problem.machine, cutoff_s)
        window = windows(problem, pool.of(problem.pipeline), value, within=window)
        if window is None or not window.count(layers):
            return replace(best, lower_bound_s=cutoff_s)
    if window.count(layers) * problem.num_stages > MOST_STAGES:
        endless = deadline.seconds_left() == np.inf
        return best if endless else _programmed(problem, pool, best, cutoff_s, deadline)
    return _listed(
        problem,
        pool,
        best,
        cutoff_s,
        window=window,
        deadline=deadline,
        target_bound_s=target_bound_s,
    )


def _listed(
    problem: StageProblem,
    pool: PathPool,
    best: SplitResult,
    cutoff_s: float,
    *,
    window: Windows,
    deadline: Deadline,
    target_bound_s: float,
) -> SplitResult:
    """Judge the splits within some windows that may be faster than the cutoff."""
    paths = pool.of(problem.pipeline)
    stages = shorter_splits(problem, paths, without_overhead(problem.machine, cutoff_s), window)
    if not len(stages):
        return replace(best, lower_bound_s=cutoff_s)
    listed = [_promising(ManySplits(problem, part), paths, cutoff_s) for part in _parts(stages)]
    all_fit = all(part.all_fit for part in listed)
    best = replace(best, memory_decides=best.memory_decides or not all_fit)
    some = ManySplits(problem, np.concatenate([part.layers for part in listed]))
    bound = np.concatenate([part.bound for part in listed])
    return _simulate_listed(
        some, bound, pool, best, cutoff_s=cutoff_s, deadline=deadline, target_bound_s=target_bound_s
    )


@dataclass(frozen=True, slots=True)
class _Promising:
    """Those of some splits that may be faster than a limit."""

    layers: IntMatrix
    bound: FloatColumn
    all_fit: bool
    """Did memory refuse none of the splits?"""


def _promising(splits: ManySplits, paths: Paths, limit_s: float) -> _Promising:
    fits = splits.may_fit()
    some = splits.take(fits)
    bound = some.bound(paths) if len(some) else np.zeros(0)
    wins = bound * EQUALS < limit_s
    return _Promising(some.layers[wins], bound[wins], bool(fits.all()))


def _parts(layers: IntMatrix) -> list[IntMatrix]:
    """Splits in parts that are bounded together."""
    size = max(1, BOUNDED_AT_ONCE // layers.shape[1])
    return [layers[start : start + size] for start in range(0, len(layers), size)]


def _simulate_listed(
    splits: ManySplits,
    bound: FloatColumn,
    pool: PathPool,
    best: SplitResult,
    *,
    cutoff_s: float,
    deadline: Deadline,
    target_bound_s: float,
) -> SplitResult:
    """Judge listed splits in the order of their bounds, which grow with every path found.

    Smallest first: once a bound is not below the best, none behind it is, and the rest is proved.
    """
    problem = splits.problem
    while True:
        limit = min(cutoff_s, best.step_time_s)
        wins = bound * EQUALS < limit
        splits, bound = splits.take(wins), bound[wins]
        if not len(bound):
            return replace(best, lower_bound_s=limit)
        best = replace(best, lower_bound_s=float(bound.min()))
        if deadline.seconds_left() <= 0 or best.lower_bound_s >= target_bound_s:
            return best
        order = np.argsort(bound, kind="stable")
        first, rest = order[:SIMULATED_AT_ONCE], order[SIMULATED_AT_ONCE:]
        known = len(pool.of(problem.pipeline).rank)
        best = _with_simulated(problem, pool, splits.layers[first], best)
        splits, bound = splits.take(rest), bound[rest]
        paths = pool.of(problem.pipeline)
        if len(rest) and len(paths.rank) > known:
            bound = np.maximum(bound, splits.bound(paths.since(known)))


def _programmed(
    problem: StageProblem, pool: PathPool, best: SplitResult, cutoff_s: float, deadline: Deadline
) -> SplitResult:
    """Judge the split with the smallest bound, again and again: an integer program finds it.

    It may give the virtual stages of a rank any numbers of layers: it drops constraints and knows
    some paths only, so its value bounds every split that is not refused.
    """
    refused: list[Counts] = []
    for _ in range(MOST_PROGRAMS):
        limit = min(cutoff_s, best.step_time_s)
        value = without_overhead(problem.machine, limit) / EQUALS
        assignment = Master(problem).assignment(
            pool.of(problem.pipeline), *bounds_of_stages(problem)
        )
        assigned = solve(replace(assignment, refused=tuple(refused)), deadline, value)
        bound = limit if assigned.lower_bound >= value else _seconds(problem, assigned.lower_bound)
        bound = max(best.lower_bound_s, bound)
        best = replace(best, lower_bound_s=bound, memory_decides=True)
        if assigned.counts is None:
            break
        known = len(pool.of(problem.pipeline).rank)
        best = _with_simulated(problem, pool, assigned.counts.sum(axis=1)[None, :], best)
        if len(pool.of(problem.pipeline).rank) == known:
            refused.append(assigned.counts)
    return best


def _seconds(problem: StageProblem, value: float) -> float:
    return float(with_overhead(problem.machine, np.array([value]))[0])


def _with_simulated(
    problem: StageProblem, pool: PathPool, layers: IntMatrix, best: SplitResult
) -> SplitResult:
    """What is known when some more splits are judged."""
    tried = simulate_splits(problem, layers)
    pool.add(problem.pipeline, tried.paths)
    times = np.where(tried.fits, tried.step_time_s, np.inf)
    first = int(np.argmin(times))
    refused = best.memory_decides or not tried.fits.all()
    best = replace(best, num_simulated=best.num_simulated + len(times), memory_decides=refused)
    if times[first] >= best.step_time_s:
        return best
    found, offload = tuple(layers[first].tolist()), float(tried.offload[first])
    return replace(best, layers=found, offload=offload, step_time_s=float(times[first]))
