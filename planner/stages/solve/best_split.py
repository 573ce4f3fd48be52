"""The best split of a layout's layers into stages: a master problem and a judge.

The master (`planner.solvers`) finds the split with the smallest lower bound; the judge runs its
schedule and returns the true step time and the path that made it. The path is one more row of the
master, so its bound grows until no split can beat the best one seen: that one is optimal under the
judge itself, not under a stand-in for it. Source: Kelley, The Cutting-Plane Method for Solving
Convex Programs, J. SIAM 8, 1960; finite because a filling is never tried twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts.table import BoolColumn, FloatColumn, LayoutTable, objects
from trainplan.costmodel.schedules.program import IntMatrix
from trainplan.costmodel.schedules.timeline.critical_path import Paths, critical_paths
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.costmodel.spec.layout import StageSpec, split
from trainplan.costmodel.step.estimate import price, with_overhead, without_overhead
from trainplan.costmodel.step.timelines import simulate, virtual_stage_seconds
from trainplan.planner.solvers.layers.assignment import Counts
from trainplan.planner.solvers.layers.milp import solve
from trainplan.planner.stages.bounds.path_pool import PathPool
from trainplan.planner.stages.problem.problem import Splittable
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
from trainplan.planner.work.budget import Deadline

FEW = 2048
"""Splits that are looked at one by one even where it is enough that none is very fast."""
JUDGED_AT_ONCE = 8
BOUNDED_AT_ONCE = 1 << 16
"""Virtual stages of splits that are bounded together, so that they stay in a cache."""
MOST_PROGRAMS = 20
"""Integer programs for one layout; its bound stays open where they do not settle it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Splits on the clock."""

    step_time_s: FloatColumn
    fits: BoolColumn
    """In memory, and among the splits the user allows."""
    paths: Paths


@dataclass(frozen=True, slots=True)
class Split:
    """What is known when the search for a split ends."""

    layers: tuple[int, ...] | None
    """Layers of every stage of the best split below the cutoff."""
    step_time_s: float
    """Its step time; infinite without one."""
    lower_bound_s: float
    """No split is faster; where none is faster than the cutoff, at least the cutoff."""
    judged: int
    """Splits whose schedule was run."""
    memory_decides: bool
    """Memory refused something; else a layout that only takes longer has no faster split."""

    def below(self, cutoff_s: float) -> Split:
        """The same, its split forgotten unless it is faster than the cutoff."""
        if self.step_time_s * EQUALS < cutoff_s:
            return self
        return replace(self, layers=None, step_time_s=np.inf)


def judge(row: Splittable, layers: IntMatrix) -> Judged:
    """Run the schedules of some splits; `layers` has shape (split, stage)."""
    judged = judge_stages(row, [split(one) for one in layers.tolist()])
    return replace(judged, fits=judged.fits & row.allows(layers))


def judge_stages(row: Splittable, choices: Sequence[tuple[StageSpec, ...]]) -> Judged:
    """Run the schedules of a layout with some stages; whether one fits is what an estimate says."""
    many = row.table.take(np.zeros(len(choices), dtype=np.int64))
    table = many.replaced(stages=objects(choices))
    priced = price(row.job, row.machine, row.traits, table, merged=False)
    simulated = simulate(row.job, priced)
    whole = simulated.with_messages + simulated.dp_comm + priced.update
    seconds = virtual_stage_seconds(row.job, priced, np.arange(len(choices)))
    behind = priced.traffic[: row.shape[0]].T
    paths = critical_paths(row.schedule, row.shape, seconds, priced.seconds.p2p, behind)
    return Judged(
        with_overhead(row.machine, whole),
        np.asarray(priced.memory.used <= row.memory_bytes),
        paths,
    )


def best_split(
    row: Splittable,
    pool: PathPool,
    cutoff_s: float,
    deadline: Deadline,
    enough_s: float = np.inf,
) -> Split:
    """The fastest split of a layout that fits and is faster than the cutoff, with its proof.

    It ends early where it is known that no split is faster than `enough_s`.

    Without a deadline no integer program is asked, which may take half a minute: the bound of a
    layout with very many splits stays open.
    """
    layers = row.job.model.num_hidden_layers
    settled = Split(None, np.inf, cutoff_s, 0, memory_decides=False)
    value = without_overhead(row.machine, cutoff_s)
    fast = windows(row, pool.of(row.pipeline), value, memory=False)
    if fast is None or not fast.count(layers):
        return settled
    window = windows(row, pool.of(row.pipeline), value, within=fast, in_time=True)
    if window is None or not window.count(layers):
        return replace(settled, memory_decides=True)
    if enough_s < cutoff_s and window.count(layers) > FEW:
        return best_split(row, pool, enough_s, deadline)
    best = replace(settled, lower_bound_s=0.0, memory_decides=not window.equals(fast))
    if window.count(layers) * row.num_stages > BOUNDED_AT_ONCE:
        best = _tried(row, pool, stages_of(row, balanced(row)), best).below(cutoff_s)
        cutoff_s = min(cutoff_s, best.step_time_s)
        value = without_overhead(row.machine, cutoff_s)
        window = windows(row, pool.of(row.pipeline), value, within=window)
        if window is None or not window.count(layers):
            return replace(best, lower_bound_s=cutoff_s)
    if window.count(layers) * row.num_stages > MOST_STAGES:
        endless = deadline.seconds_left() == np.inf
        return best if endless else _programmed(row, pool, best, cutoff_s, deadline)
    return _listed(row, pool, best, cutoff_s, window=window, deadline=deadline, enough_s=enough_s)


def _listed(
    row: Splittable,
    pool: PathPool,
    best: Split,
    cutoff_s: float,
    *,
    window: Windows,
    deadline: Deadline,
    enough_s: float,
) -> Split:
    """Judge the splits within some windows that may be faster than the cutoff."""
    paths = pool.of(row.pipeline)
    stages = shorter_splits(row, paths, without_overhead(row.machine, cutoff_s), window)
    if not len(stages):
        return replace(best, lower_bound_s=cutoff_s)
    listed = [_promising(ManySplits(row, part), paths, cutoff_s) for part in _parts(stages)]
    all_fit = all(part.all_fit for part in listed)
    best = replace(best, memory_decides=best.memory_decides or not all_fit)
    some = ManySplits(row, np.concatenate([part.layers for part in listed]))
    bound = np.concatenate([part.bound for part in listed])
    return _judged(some, bound, pool, best, cutoff_s=cutoff_s, deadline=deadline, enough_s=enough_s)


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


def _judged(
    splits: ManySplits,
    bound: FloatColumn,
    pool: PathPool,
    best: Split,
    *,
    cutoff_s: float,
    deadline: Deadline,
    enough_s: float,
) -> Split:
    """Judge listed splits in the order of their bounds, which grow with every path found.

    Smallest first: once a bound is not below the best, none behind it is, and the rest is proved.
    """
    row = splits.row
    while True:
        limit = min(cutoff_s, best.step_time_s)
        wins = bound * EQUALS < limit
        splits, bound = splits.take(wins), bound[wins]
        if not len(bound):
            return replace(best, lower_bound_s=limit)
        best = replace(best, lower_bound_s=float(bound.min()))
        if deadline.seconds_left() <= 0 or best.lower_bound_s >= enough_s:
            return best
        order = np.argsort(bound, kind="stable")
        first, rest = order[:JUDGED_AT_ONCE], order[JUDGED_AT_ONCE:]
        known = len(pool.of(row.pipeline).rank)
        best = _tried(row, pool, splits.layers[first], best)
        splits, bound = splits.take(rest), bound[rest]
        paths = pool.of(row.pipeline)
        if len(rest) and len(paths.rank) > known:
            bound = np.maximum(bound, splits.bound(paths.since(known)))


def _programmed(
    row: Splittable, pool: PathPool, best: Split, cutoff_s: float, deadline: Deadline
) -> Split:
    """Judge the split with the smallest bound, again and again: an integer program finds it.

    It may give the virtual stages of a rank any numbers of layers: it drops constraints and knows
    some paths only, so its value bounds every split that is not refused.
    """
    refused: list[Counts] = []
    for _ in range(MOST_PROGRAMS):
        limit = min(cutoff_s, best.step_time_s)
        value = without_overhead(row.machine, limit) / EQUALS
        filling = Master(row).filling(pool.of(row.pipeline), *bounds_of_stages(row))
        filled = solve(replace(filling, refused=tuple(refused)), deadline, value)
        bound = limit if filled.lower_bound >= value else _seconds(row, filled.lower_bound)
        bound = max(best.lower_bound_s, bound)
        best = replace(best, lower_bound_s=bound, memory_decides=True)
        if filled.counts is None:
            break
        known = len(pool.of(row.pipeline).rank)
        best = _tried(row, pool, filled.counts.sum(axis=1)[None, :], best)
        if len(pool.of(row.pipeline).rank) == known:
            refused.append(filled.counts)
    return best


def _seconds(row: Splittable, value: float) -> float:
    return float(with_overhead(row.machine, np.array([value]))[0])


def _tried(row: Splittable, pool: PathPool, layers: IntMatrix, best: Split) -> Split:
    """What is known when some more splits are judged."""
    tried = judge(row, layers)
    pool.add(row.pipeline, tried.paths)
    times = np.where(tried.fits, tried.step_time_s, np.inf)
    first = int(np.argmin(times))
    refused = best.memory_decides or not tried.fits.all()
    best = replace(best, judged=best.judged + len(times), memory_decides=refused)
    if times[first] >= best.step_time_s:
        return best
    return replace(best, layers=tuple(layers[first].tolist()), step_time_s=float(times[first]))


def with_split(table: LayoutTable, layers: tuple[int, ...]) -> LayoutTable:
    """The row of a table with its layers split so."""
    return table.replaced(stages=objects([split(layers)]))
