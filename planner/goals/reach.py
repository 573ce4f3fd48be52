"""The objectives of a search: each finds the layouts of a plan and says what is proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.base.units import SECONDS_PER_DAY, long_unit
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.step.money import run_steps
from trainplan.planner.goals.cluster_sizes import (
    BestSize,
    cheapest_size,
    fewest_gpus,
    figure_of,
    longest_step,
    lower_bound_of,
    scale_of,
    value_of,
)
from trainplan.planner.goals.context import Prober, UntilSettled
from trainplan.planner.goals.memory_minimal import leanest
from trainplan.planner.goals.uneven import (
    faster_splits,
    joined,
    looks_for_uneven,
    proof_of,
    splits_freely,
    wants_uneven,
)
from trainplan.planner.plan.plan import UnevenStages
from trainplan.planner.plan.target import Name, Target
from trainplan.planner.search.result import Found, FreeFound
from trainplan.planner.search.tree import Search
from trainplan.planner.stages.search import TRIED_FIRST
from trainplan.planner.work.budget import Budget, Within

UNITS: Mapping[Name, str] = {"time": "s", "memory": "bytes", "energy": "J", "gpus": "GPUs"}
"""Of each objective; money has the currency of the cluster."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a plan is made of."""

    job: Job
    """On the part of the cluster that is used."""
    found: Found
    """Its finalists, the answer first."""
    target: Target | None
    """None where nothing fits."""
    free: FreeFound | None = None
    """What uneven stages give, where the search for even ones made way for them."""
    uneven: UnevenStages | None = None
    """What is proven of even stages and of uneven ones, where both were searched."""

    @property
    def lower_bound_s(self) -> float:
        """No layout of the space is faster. Source: as `Found.lower_bound_s`."""
        thrifty = self.target is not None and self.target.name == "energy"
        return self.found.floor_s if thrifty else self.found.lower_bound_s


def reach(prober: Prober, job: Job) -> Reached:
    """The layouts of a plan for the objective of the options.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    return _GOALS[prober.options.objective](prober, job)


def _fastest(prober: Prober, job: Job) -> Reached:
    """The best even stages, then uneven ones, the alternatives beside or last: time is short."""
    search, free = prober.search(job, top=_finalists(prober)), None
    if looks_for_uneven(job, prober.options) and not wants_uneven(prober.options):
        found = search.run(UntilSettled(search, prober.budget))
        if found.finalists is not None and prober.options.only_answer:
            free = faster_splits(prober, job, found)
        elif found.finalists is not None:
            others = prober.workers.beside(partial(_others, search, Within(prober.budget)))
            free, found = faster_splits(prober, job, found), replace(others(), roots=found.roots)
    else:
        found = search.run(prober.budget)
    if found.finalists is None:
        return Reached(job, found, None)
    target = step_target(prober, job, found.value, found.lower_bound_s)
    return Reached(job, found, target, free=free)


def _others(search: Search, budget: Budget) -> Found:
    """The alternatives to an answer, without the nodes: they travel, and the answer has them."""
    found = search.run(budget)
    return replace(found, roots=found.roots.take(np.arange(0)))


def step_target(prober: Prober, job: Job, step_s: float, lower_bound_s: float) -> Target:
    """The step time of an answer; whether it is in time is asked when the search ends."""
    limit = longest_step(prober, job)
    return Target(
        name="time",
        unit=UNITS["time"],
        per="step",
        value=step_s,
        lower_bound=lower_bound_s,
        step_time_limit_s=limit if np.isfinite(limit) else None,
    )


def _finalists(prober: Prober) -> int:
    """Layouts that are listed, or whose stages are split before any others."""
    options = prober.options
    alone = options.only_answer and options.tries_uneven is None
    return options.top if alone else max(options.top, TRIED_FIRST)


def _leanest(prober: Prober, job: Job) -> Reached:
    """The fastest first: the slack is counted from its step, whatever its stages."""
    fastest = _fastest(prober, job)
    found, free = fastest.found, fastest.free
    if found.finalists is None:
        return fastest
    best_s, deadline = value_of(found, free), longest_step(prober, job)
    if best_s > deadline:
        raise too_late(prober, job, best_s, even=not looks_for_uneven(job, prober.options))
    limit = min(best_s * (1 + prober.options.slack), deadline)
    finalists, top = found.finalists, prober.options.top
    known = [] if free is None or free.table is None else [free.table]
    if found.value <= limit:
        known.append(finalists.take(np.array([0])))
    lean = leanest(prober, job, LayoutTable.concat(known), limit)
    target = Target(
        name="memory",
        unit=UNITS["memory"],
        per="step",
        value=lean.used_bytes,
        lower_bound=lean.lower_bound_bytes,
        step_time_limit_s=limit,
    )
    others = finalists if free is None else joined(finalists, free, top) or finalists
    first = _first(lean.layout, others, top)
    return Reached(
        job, replace(found, finalists=first, lower_bound_s=lower_bound_of(found, free)), target
    )


def _cheapest(prober: Prober, job: Job) -> Reached:
    size = cheapest_size(prober, job, prober.options.objective)
    return _none(prober, job) if size.found is None else _sized(prober, size, size.found)


def _fewest(prober: Prober, job: Job) -> Reached:
    if prober.options.deadline_days is None or job.training.tokens is None:
        raise SpecError(
            "the fewest GPUs for what? give --tokens, such as 15T, and --deadline, such as 30d"
        )
    size = fewest_gpus(prober, job)
    return _none(prober, job) if size.found is None else _sized(prober, size, size.found)


def _sized(prober: Prober, size: BestSize, known: Found) -> Reached:
    """The whole search on the size chosen, for the alternatives; what is known if time is short."""
    name, job = prober.options.objective, size.job
    limit, top = longest_step(prober, job), _finalists(prober)
    found = prober.search(job, figure_of(name), most_seconds=limit, top=top).run(prober.budget)
    found = found if found.complete else known
    free = size.free
    if name == "gpus" and splits_freely(job, prober.options) and not prober.options.only_answer:
        free = _faster(free, faster_splits(prober, job, found, np.nextafter(limit, np.inf)))
    found, uneven = _with_splits(found, free, limit, top)
    value = size.value if name == "gpus" else found.value * scale_of(job, name)
    target = Target(
        name=name,
        unit=UNITS.get(name, job.cluster.currency),
        per="run" if job.training.tokens else "step",
        value=value,
        lower_bound=min(size.lower_bound, value),
        step_time_limit_s=limit if np.isfinite(limit) else None,
        tried=size.tried,
    )
    return Reached(job, found, target, uneven=uneven)


def _faster(one: FreeFound | None, other: FreeFound) -> FreeFound:
    """The better of two searches of one job."""
    if one is None or one.table is None:
        return other
    return one if other.table is None or one.step_time_s < other.step_time_s else other


def _with_splits(
    found: Found, free: FreeFound | None, limit: float, top: int
) -> tuple[Found, UnevenStages | None]:
    """An even answer, or a faster one with uneven stages before it; none is slower than a limit."""
    if free is None:
        return found, None
    in_time = found.finalists if found.value <= limit else None
    changed = replace(
        found,
        finalists=joined(in_time, free, top),
        lower_bound_s=lower_bound_of(found, free),
        value=value_of(found, free),
    )
    return changed, proof_of(found, free) if np.isfinite(found.value) else None


def _none(prober: Prober, job: Job) -> Reached:
    """No size has an answer: nothing fits, or nothing that fits is fast enough."""
    fastest = prober.search(job).run(prober.budget)
    if fastest.finalists is not None:
        raise too_late(prober, job, fastest.value, even=traits_of(job).pipeline.splits_freely)
    return Reached(job, fastest, None)


def too_late(prober: Prober, job: Job, step_s: float, *, even: bool) -> SpecError:
    """The fastest layout found, maybe of those with even stages, misses the deadline."""
    taken = step_s * (run_steps(job) or 1)
    wanted = (prober.options.deadline_days or 0.0) * SECONDS_PER_DAY
    stages = " with even stages" if even else ""
    return SpecError(
        f"no layout that was found ends the run in {_long(wanted)}: the fastest{stages} on all "
        f"{job.cluster.num_gpus} GPUs takes {_long(taken)}: raise --deadline, lower --tokens, "
        "or give more nodes"
    )


def _long(value_seconds: float) -> str:
    size, unit = long_unit(value_seconds)
    return f"{value_seconds / size:.4g} {unit}"


def _first(chosen: LayoutTable, others: LayoutTable, most: int) -> LayoutTable:
    """The chosen layout before the others, once."""
    same = [others.row(i) == chosen.row(0) for i in range(len(others))]
    rest = others.take(np.flatnonzero(~np.array(same))[: most - 1])
    return LayoutTable.concat([chosen, rest])


_GOALS: Mapping[Name, Callable[[Prober, Job], Reached]] = {
    "time": _fastest,
    "memory": _leanest,
    "cost": _cheapest,
    "energy": _cheapest,
    "gpus": _fewest,
}
