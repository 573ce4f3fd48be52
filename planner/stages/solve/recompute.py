"""How many layers each stage recomputes, and how many it holds, where stages need not be alike.

A filling has two ways to run a layer: kept whole, or recomputed in full. The integer program finds
the choice with the smallest bound, its schedule is run, and the longest path of that run is one
more row of the filling, as for splits in `solve.best_split`. It ends where no bound is below the
best.
"""

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.columns import IntColumn, objects
from trainplan.costmodel.layout import StageSpec
from trainplan.costmodel.layouts import BLOCK, FULL, NONE, LayoutTable
from trainplan.costmodel.pipeline import layers_before
from trainplan.costmodel.step import with_overhead, without_overhead
from trainplan.costmodel.timeline import EQUALS
from trainplan.planner.solvers import ROUNDING, Counts, LayerAssignment, solve
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.recompute import stages_with
from trainplan.planner.stages.problem.chunks import stage_ends
from trainplan.planner.stages.problem.memory import needs_at_every_moment
from trainplan.planner.stages.problem.problem import StageProblem
from trainplan.planner.stages.solve.batch import SimulatedSplits, simulate_stages
from trainplan.planner.stages.solve.master import Master
from trainplan.planner.stages.solve.windows import windows
from trainplan.planner.work import Deadline

MOST_PROGRAMS = 20
"""Integer programs for one layout; its bound stays open where they do not settle it."""


@dataclass(frozen=True, slots=True)
class ByStage:
    """What is known when the search ends."""

    stages: tuple[StageSpec, ...] | None
    """The stages of the fastest layout below the cutoff; None where none was found."""
    offload: float
    """Fraction of the optimizer that it offloads."""
    step_time_s: float
    """Its step time; infinite without one."""
    lower_bound_s: float
    """No choice is faster; where none is faster than the cutoff, at least the cutoff."""
    num_simulated: int
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
    problem: StageProblem,
    pool: PathPool,
    cutoff_s: float,
    deadline: Deadline,
    split: IntColumn | None = None,
) -> ByStage:
    """The fastest choice for a layout of `by_stage` that fits and is faster than the cutoff.

    `split` holds the layers of every stage; None: any split.
    """
    best = ByStage(None, 0.0, np.inf, 0.0, 0)
    refused: list[Counts] = []
    for _ in range(MOST_PROGRAMS):
        limit = min(cutoff_s, best.step_time_s)
        value = without_overhead(problem.machine, limit) / EQUALS
        assignment = _assignment(problem, pool, value, split)
        if assignment is None:
            return replace(best, lower_bound_s=limit)
        assigned = solve(replace(assignment, refused=tuple(refused)), deadline, value)
        least = float(with_overhead(problem.machine, np.array([assigned.lower_bound]))[0])
        bound = limit if assigned.lower_bound >= value else least
        best = replace(best, lower_bound_s=min(limit, max(best.lower_bound_s, bound)))
        if assigned.counts is None:
            break
        known = len(pool.of(problem.pipeline).rank)
        best = _with_simulated(problem, pool, assigned.counts, best, limit)
        if len(pool.of(problem.pipeline).rank) == known:
            refused.append(assigned.counts)
    return best


def _assignment(
    problem: StageProblem, pool: PathPool, value: float, split: IntColumn | None
) -> LayerAssignment | None:
    """All choices that may take less than `value` seconds, as far as paths tell them apart."""
    paths = pool.of(problem.pipeline)
    if split is not None:
        return Master(problem).assignment(paths, split, split)
    window = windows(_without(problem), paths, value, memory=False)
    if window is None:
        return None
    ends = stage_ends(problem.stage_of, window.least, window.most, alike=problem.alike)
    return Master(problem).assignment(paths, *ends)


def _without(problem: StageProblem) -> StageProblem:
    """The same without recomputation: it only adds time."""
    none = {
        "recompute": np.array([NONE]),
        "recompute_method": np.array([0]),
        "recompute_num_layers": np.array([0]),
    }
    parts = (replace(one, table=one.table.replaced(**none)) for one in problem.parts)
    return replace(problem, parts=tuple(parts))


def _with_simulated(
    problem: StageProblem, pool: PathPool, counts: Counts, best: ByStage, limit_s: float
) -> ByStage:
    """What is known when one more choice is judged; it counts if it is faster than the limit."""
    again = counts[:, len(problem.kinds) :].sum(axis=1)
    stages = stages_with(counts.sum(axis=1), again)
    simulated, fits = _simulated(problem, stages)
    pool.add(problem.pipeline, simulated.paths)
    best = replace(best, num_simulated=best.num_simulated + 1)
    if not fits or simulated.step_time_s[0] >= limit_s:
        return best
    return replace(
        best,
        stages=stages,
        offload=float(simulated.offload[0]),
        step_time_s=float(simulated.step_time_s[0]),
    )


def simulated_choice(problem: StageProblem, stages: tuple[StageSpec, ...]) -> ByStage | None:
    """A choice on the clock; None where it does not fit."""
    simulated, fits = _simulated(problem, stages)
    seconds, offload = float(simulated.step_time_s[0]), float(simulated.offload[0])
    return ByStage(stages, offload, seconds, 0.0, 1) if fits else None


def _simulated(
    problem: StageProblem, stages: tuple[StageSpec, ...]
) -> tuple[SimulatedSplits, bool]:
    """A choice with the least it may offload, and whether it fits.

    As its estimate says, and at every moment when a rank may be fullest.
    Source: `needs_at_every_moment`, whose bytes fall by what is offloaded of a rank's optimizer.
    """
    needs, counts = needs_at_every_moment(problem), _counts(problem, stages)
    over = np.einsum("jsw,sw->j", needs.costs, counts) + needs.constants
    fits = bool((over <= ROUNDING * np.abs(needs.constants)).all())
    if fits and problem.offloads is not None:
        one, layers = problem.costs.optimizer_bytes, np.zeros(problem.ends.shape)
        for way, kind in enumerate(problem.kinds * 2):
            layers[:, kind] += counts[:, way]
        of_stages = ((layers + problem.ends) * one).sum(axis=1)
        stage = np.argmax(needs.costs.any(axis=2), axis=1)
        rank = (problem.stage_of == stage[:, None, None]).any(axis=2).argmax(axis=1)
        states = of_stages[problem.stage_of].sum(axis=1)[rank]
        least = float(problem.offloads.enough(over[None], states[None])[0])
        problem = replace(problem, offloads=problem.offloads._replace(least=least))
    simulated = simulate_stages(problem, [stages])
    return simulated, fits and bool(simulated.fits[0])


def _counts(problem: StageProblem, stages: tuple[StageSpec, ...]) -> Counts:
    """Layers of every stage by way: the kinds kept whole, then recomputed."""
    held = np.array([stage.layers for stage in stages])
    again = np.array([stage.recompute_num_layers or 0 for stage in stages])
    before, end = layers_before(problem.job.model.kind_of_layer), np.cumsum(held)
    among = end - held + again
    return np.concatenate([before[end] - before[among], before[among] - before[end - held]], axis=1)
