"""How many layers each stage recomputes, and how many it holds, where stages need not be alike.

A filling has two ways to run a layer: kept whole, or recomputed in full. The integer program finds
the choice with the smallest bound, its schedule is run, and the longest path of that run is one
more row of the filling, as for splits in `solve.best_split`. It ends where no bound is below the
best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.layouts.table import BLOCK, FULL, NONE, IntColumn, LayoutTable, objects
from trainplan.costmodel.schedules.timeline.lower_bounds import EQUALS
from trainplan.costmodel.spec.layout import StageSpec
from trainplan.costmodel.step.block_costs import DENSE, MOE
from trainplan.costmodel.step.estimate import with_overhead, without_overhead
from trainplan.planner.solvers.layers.assignment import Counts, Filling
from trainplan.planner.solvers.layers.feasibility import ROUNDING
from trainplan.planner.solvers.layers.milp import solve
from trainplan.planner.stages.bounds.path_pool import PathPool
from trainplan.planner.stages.bounds.recompute import stages_with
from trainplan.planner.stages.problem.memory import needs_at_every_moment
from trainplan.planner.stages.problem.problem import Splittable
from trainplan.planner.stages.solve.best_split import judge_stages
from trainplan.planner.stages.solve.master import Master
from trainplan.planner.stages.solve.windows import bounds_of_stages, windows
from trainplan.planner.work.budget import Deadline

MOST_PROGRAMS = 20
"""Integer programs for one layout; its bound stays open where they do not settle it."""


@dataclass(frozen=True, slots=True)
class ByStage:
    """What is known when the search ends."""

    stages: tuple[StageSpec, ...] | None
    """The stages of the fastest layout below the cutoff; None where none was found."""
    step_time_s: float
    """Its step time; infinite without one."""
    lower_bound_s: float
    """No choice is faster; where none is faster than the cutoff, at least the cutoff."""
    judged: int
    """Choices whose schedule was run."""


def by_stage(table: LayoutTable) -> LayoutTable:
    """The rows of a table with full recomputation of some layers of each stage, evenly split."""
    size = len(table)
    return table.replaced(
        recompute=np.full(size, FULL),
        recompute_modules=np.zeros(size, dtype=np.int64),
        recompute_method=np.full(size, BLOCK),
        recompute_num_layers=np.ones(size, dtype=np.int64),
        stages=objects([None] * size),
    )


def best_by_stage(
    row: Splittable,
    pool: PathPool,
    cutoff_s: float,
    deadline: Deadline,
    split: IntColumn | None = None,
) -> ByStage:
    """The fastest choice for a layout of `by_stage` that fits and is faster than the cutoff.

    `split` holds the layers of every stage; None: any split.
    """
    best = ByStage(None, np.inf, 0.0, 0)
    refused: list[Counts] = []
    for _ in range(MOST_PROGRAMS):
        limit = min(cutoff_s, best.step_time_s)
        value = without_overhead(row.machine, limit) / EQUALS
        filling = _filling(row, pool, value, split)
        if filling is None:
            return replace(best, lower_bound_s=limit)
        filled = solve(replace(filling, refused=tuple(refused)), deadline, value)
        bound = limit if filled.lower_bound >= value else _seconds(row, filled.lower_bound)
        best = replace(best, lower_bound_s=min(limit, max(best.lower_bound_s, bound)))
        if filled.counts is None:
            break
        known = len(pool.of(row.pipeline).rank)
        best = _tried(row, pool, filled.counts, best, limit)
        if len(pool.of(row.pipeline).rank) == known:
            refused.append(filled.counts)
    return best


def _filling(
    row: Splittable, pool: PathPool, value: float, split: IntColumn | None
) -> Filling | None:
    """All choices that may take less than `value` seconds, as far as paths tell them apart."""
    paths = pool.of(row.pipeline)
    if split is not None:
        return Master(row, by_stage=True).filling(paths, split, split)
    window = windows(_without(row), paths, value, memory=False)
    if window is None or not window.count(row.job.model.num_hidden_layers):
        return None
    least, most = bounds_of_stages(row)
    for rank, own in enumerate(row.stage_of):
        least[own] = np.maximum(least[own], window.least[rank] // row.shape[1])
        most[own] = np.minimum(most[own], -(-window.most[rank] // row.shape[1]))
    return Master(row, by_stage=True).filling(paths, least, most)


def _without(row: Splittable) -> Splittable:
    """The same without recomputation: it only adds time."""
    none = {
        "recompute": np.array([NONE]),
        "recompute_method": np.array([0]),
        "recompute_num_layers": np.array([0]),
    }
    return replace(row, table=row.table.replaced(**none))


def _seconds(row: Splittable, value: float) -> float:
    return float(with_overhead(row.machine, np.array([value]))[0])


def _tried(
    row: Splittable, pool: PathPool, counts: Counts, best: ByStage, limit_s: float
) -> ByStage:
    """What is known when one more choice is judged; it counts if it is faster than the limit."""
    again = counts[:, len(row.kinds) :].sum(axis=1)
    stages = stages_with(counts.sum(axis=1), again)
    judged = judge_stages(row, [stages])
    pool.add(row.pipeline, judged.paths)
    best = replace(best, judged=best.judged + 1)
    in_memory = judged.fits[0] and _at_every_moment(row, stages)
    if not in_memory or judged.step_time_s[0] >= limit_s:
        return best
    return replace(best, stages=stages, step_time_s=float(judged.step_time_s[0]))


def fits(row: Splittable, stages: tuple[StageSpec, ...]) -> bool:
    """Does a choice fit, as its estimate says and at every moment when a rank may be fullest?"""
    return _at_every_moment(row, stages) and bool(judge_stages(row, [stages]).fits[0])


def _at_every_moment(row: Splittable, stages: tuple[StageSpec, ...]) -> bool:
    """Source: `needs_at_every_moment`."""
    needs = needs_at_every_moment(row)
    used = np.einsum("jsw,sw->j", needs.costs, _counts(row, stages))
    return bool((used + needs.constants <= ROUNDING * np.abs(needs.constants)).all())


def _counts(row: Splittable, stages: tuple[StageSpec, ...]) -> Counts:
    """Layers of every stage by way: the kinds kept whole, then recomputed."""
    held = np.array([stage.layers for stage in stages])
    again = np.array([stage.recompute_num_layers or 0 for stage in stages])
    moe = np.concatenate([[0], np.cumsum(row.job.model.moe_layers)])
    end = np.cumsum(held)
    among = end - held + again
    dearer = np.stack([moe[end] - moe[among], moe[among] - moe[end - held]])
    total = np.stack([held - again, again])
    parts = {DENSE: total - dearer, MOE: dearer}
    return np.stack([parts[kind][way] for way in (0, 1) for kind in row.kinds], axis=1)
