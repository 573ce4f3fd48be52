"""The choices between two objectives: every layout that no other beats in both.

For each size of the cluster that is tried, the best layout by one figure is found, then the best
that is strictly better by the other, and so on until none is left. Each search is exact, so the
set is; a time limit leaves points out, and the answer states it. Where the optimizer is offloaded
bit by bit the set is a line: of it points are kept that differ by a hundredth of the memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from typing import ClassVar, Literal

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import energy_of, stretch_of
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.step import Estimate, explicit
from trainplan.planner.documents import Document, OfJob, Priced, WrittenLayout, of_job, of_priced
from trainplan.planner.goals.after_even import check_uneven
from trainplan.planner.goals.cluster_sizes import (
    ending,
    island_jobs,
    longest_step,
    part_jobs,
    scale_of,
)
from trainplan.planner.goals.context import Figure, SearchContext
from trainplan.planner.goals.reach import UNITS
from trainplan.planner.plan import Name, SearchOptions
from trainplan.planner.space import allowed
from trainplan.planner.tree import StepEnergy
from trainplan.planner.work import Budget, Unlimited

PAIRS: tuple[tuple[Name, Name], ...] = (
    ("time", "memory"),
    ("cost", "time"),
    ("cost", "memory"),
    ("energy", "time"),
    ("energy", "memory"),
    ("energy", "cost"),
    ("gpus", "time"),
    ("gpus", "cost"),
    ("gpus", "energy"),
)
"""Pairs that make sense: GPUs and memory do not determine how long a step takes."""
PROGRESS = 1 - 1e-9
"""A step must be shorter than the last one by this factor: nearer is rounding."""

TIE = 1e-4
"""Share by which two points may differ in both figures and count as one. Source: assumed; less than
a hundredth of what the model is wrong by."""
SEPARATE = 0.01
"""Of the memory, between two points of a line. Source: assumed; some dozen points."""


class Point(Spec):
    """A layout that no other beats in both objectives."""

    num_gpus: int
    layout: Layout
    estimate: Estimate
    values: tuple[float, float]
    """In the order of the objectives; for `memory` the bytes used on the fullest rank, for
    `time` the seconds that pass for a step, which with failures are more than those of it."""


class Pareto(Spec):
    """All of them, the best by the first objective first."""

    job: Job
    objectives: tuple[Name, Name]
    units: tuple[str, str]
    per: str
    """What money and joules are counted over: `step`, or the `run` of `training.tokens`."""
    points: tuple[Point, ...]
    sizes: tuple[int, ...]
    """Numbers of GPUs tried."""
    complete: bool
    """No point is missing: no time limit struck."""
    ties: int = 0
    """Points left out, each within 0.01 % of another in both objectives."""


def pareto(
    job: Job,
    objectives: tuple[Name, Name],
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    measured: Measured = NOTHING,
) -> Pareto:
    """All layouts that no other beats in both objectives; none where nothing fits.

    Raises:
        PlanError: The pair makes no sense, or the job lacks a number it needs.
    """
    if not any(set(objectives) == set(pair) for pair in PAIRS):
        known = ", ".join(",".join(pair) for pair in PAIRS)
        raise SpecError(f"no choices between {' and '.join(objectives)}: pairs are {known}")
    options = options or SearchOptions()
    job = allowed(job, options.choices)
    context = SearchContext.of(job, options, measured, budget or Unlimited())
    check_uneven(context, pareto=True)
    both = set(objectives) == {"time", "memory"}
    jobs = ending((job, *island_jobs(job))) if both else part_jobs(job)
    points: list[Point] = []
    sizes: set[int] = set()
    for one in sorted(jobs, key=lambda job: is_heterogeneous(job.cluster)):
        sweep = _Sweep(context.with_job(one), objectives)
        if both and one is not job and sweep.is_slower(points):
            continue
        sizes.add(one.cluster.num_gpus)
        if "memory" in objectives or not sweep.is_beaten(points):
            points += sweep.points()
    front = nondominated(points)
    kept = without_ties(front)
    return Pareto(
        job=job,
        objectives=objectives,
        units=(_unit(job, objectives[0]), _unit(job, objectives[1])),
        per="run" if job.training.tokens else "step",
        points=kept,
        sizes=tuple(sorted(sizes)),
        complete=not context.budget.spent(),
        ties=len(front) - len(kept),
    )


def nondominated(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points that no other beats, of equal ones the first; in order of the first objective."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (point.values, point.num_gpus)):
        if not kept or point.values[1] < kept[-1].values[1]:
            kept.append(point)
    return tuple(kept)


def without_ties(points: Sequence[Point]) -> tuple[Point, ...]:
    """Without those within `TIE` of the one before that is kept, in both objectives."""
    kept: list[Point] = []
    for point in points:
        pairs = zip(point.values, kept[-1].values, strict=True) if kept else ()
        if not kept or any(abs(one - other) > TIE * abs(other) for one, other in pairs):
            kept.append(point)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The points of one size of the cluster."""

    context: SearchContext
    objectives: tuple[Name, Name]

    def is_beaten(self, points: Sequence[Point]) -> bool:
        """Is a point no worse in both than any layout of this size can be?"""
        search = self.context.search(self._figure)
        step_s, gpus = search.step_bound_s, float(self.context.job.cluster.num_gpus)
        of = {"energy": search.nodes.smallest, "cost": step_s, "time": step_s, "gpus": gpus}
        least = [of[one] * self._scale(one) for one in self.objectives]
        pairs = (zip(point.values, least, strict=True) for point in points)
        return any(all(value <= bound for value, bound in pair) for pair in pairs)

    def is_slower(self, points: Sequence[Point]) -> bool:
        """Is a point no slower than any layout of this size can be?"""
        bound = self.context.search().step_bound_s
        return any(point.estimate.step_time_s <= bound for point in points)

    def _scale(self, name: Name) -> float:
        if name == "time":
            return stretch_of(self.context.job)
        return scale_of(self.context.job, name) if name in ("cost", "energy") else 1.0

    def points(self) -> Iterator[Point]:
        """One after the other, each strictly better by the figure that is tightened."""
        memory, most = inf, longest_step(self.context)
        while not self.context.budget.spent():
            search = self.context.search(self._figure, memory_bytes=memory, most_seconds=most)
            cutoff = nextafter(most, inf) if self._figure == "time" else inf
            found = self.context.best(search, cutoff)
            if found.finalists is None or not found.complete or found.value >= cutoff:
                return
            point = self._point(found.finalists)
            yield point
            if "memory" in self.objectives:
                memory = self._memory_below(point)
            elif self._figure == "energy" and "gpus" not in self.objectives:
                most = point.estimate.step_time_s * PROGRESS
            else:
                return

    def _memory_below(self, point: Point) -> float:
        """Bytes that the next point may use."""
        used, fraction = point.estimate.memory.peak_reserved_bytes, point.layout.offload.optimizer
        step = self.context.traits.offloading.optimizer_step
        line = step is not None and step < SEPARATE and 0 < fraction < 1
        return used * (1 - SEPARATE) if line else used - 1.0

    @property
    def _figure(self) -> Figure:
        return "energy" if "energy" in self.objectives else "time"

    def _point(self, table: LayoutTable) -> Point:
        margin = self.context.margin
        estimate = explicit(self.context.with_table(table), memory_margin=margin)[0]
        first, second = (self._value(name, table, estimate) for name in self.objectives)
        return Point(
            num_gpus=self.context.job.cluster.num_gpus,
            layout=table.row(0),
            estimate=estimate,
            values=(first, second),
        )

    def _value(self, name: Name, table: LayoutTable, estimate: Estimate) -> float:
        if name == "memory":
            return estimate.memory.peak_reserved_bytes
        if name == "gpus":
            return float(self.context.job.cluster.num_gpus)
        seconds = np.array([estimate.step_time_s])
        if name == "energy":
            seconds = StepEnergy(energy_of(*self.context.shared)).value(table, seconds)
        return float(seconds[0]) * self._scale(name)


def _unit(job: Job, name: Name) -> str:
    return UNITS.get(name, job.cluster.currency)


@dataclass(frozen=True, kw_only=True)
class Objective(Document):
    """One of the two."""

    name: str
    unit: str
    per: Literal["step", "run"]


@dataclass(frozen=True, kw_only=True)
class ParetoPoint(Priced):
    """A layout that no other beats in both."""

    num_gpus: int
    values: tuple[float, ...]
    """In the order of the objectives."""
    layout: WrittenLayout  # type: ignore[valid-type]
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class ParetoDocument(OfJob):
    """All layouts that no other beats in both of two objectives."""

    SCHEMA = "trainplan/pareto/v1"
    TEXTS: ClassVar = {"model": "As in a plan, with `training`, `cluster` and `runtime`."}
    schema: Literal["trainplan/pareto/v1"]
    """Name and version of this form, `trainplan/pareto/v1`."""
    objectives: tuple[Objective, ...]
    """The two, each with `name`, `unit` and `per`: `step` or `run`."""
    points: tuple[ParetoPoint, ...]
    """Layouts that no other beats in both, the best by the first objective first: `num_gpus`,
    `values` in the order of the objectives, `layout`, `estimate`."""
    sizes: tuple[int, ...]
    """Numbers of GPUs tried."""
    complete: bool
    """False when a time limit struck, so that points may be missing."""
    ties: int
    """Points left out, each within 0.01 % of another in both objectives."""


def pareto_json(pareto: Pareto) -> Mapping[str, object]:
    """The public document `trainplan/pareto/v1`."""
    job, names = pareto.job, zip(pareto.objectives, pareto.units, strict=True)
    return ParetoDocument.of_fields(
        pareto,
        **of_job(job),
        objectives=tuple(
            Objective.of_fields(
                None, name=name, unit=unit, per="step" if name == "time" else pareto.per
            )
            for name, unit in names
        ),
        points=tuple(ParetoPoint.of_fields(one, **of_priced(job, one)) for one in pareto.points),
    ).json()
