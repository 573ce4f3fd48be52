"""The objectives of a search: each finds the layouts of a plan and says what is proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import SECONDS_PER_DAY, SpecError, long_unit
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import run_steps
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
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenAnswer
from trainplan.planner.goals.fastest import Fastest, fastest, num_finalists, settings_of_fastest
from trainplan.planner.goals.longest import ladder
from trainplan.planner.goals.memory_minimal import memory_minimal
from trainplan.planner.goals.uneven import (
    faster_splits,
    joined,
    looks_for_uneven,
    proof_of,
    splits_freely,
    wants_uneven,
)
from trainplan.planner.plan import Name, Settings, Target, UnevenStages
from trainplan.planner.tree import SearchResult, UnevenResult

UNITS: Mapping[Name, str] = {
    "time": "s",
    "memory": "bytes",
    "energy": "J",
    "gpus": "GPUs",
    "context": "tokens",
}
"""Of each objective; money has the currency of the cluster."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a plan is made of."""

    context: SearchContext
    """Of the job on the part of the cluster that is used."""
    found: SearchResult
    """Its finalists, the answer first."""
    target: Target | None
    """None where nothing fits."""
    uneven_result: UnevenResult | None = None
    """What uneven stages give, where the search for even ones made way for them."""
    settings: Settings | None = None
    """What is proven of settings, where some were varied."""
    uneven: UnevenStages | None = None
    """What is proven of even stages and of uneven ones, where both were searched."""

    @classmethod
    def of(cls, answer: Fastest) -> Reached:
        """The fastest layouts."""
        return cls(
            answer.context,
            answer.found,
            answer.target,
            uneven_result=answer.uneven_result,
            settings=answer.settings,
        )

    @property
    def job(self) -> Job:
        """The job of the answer."""
        return self.context.job

    @property
    def lower_bound_s(self) -> float:
        """No layout of the space is faster. Source: as `SearchResult.lower_bound_s`."""
        energy_minimal = self.target is not None and self.target.name == "energy"
        return self.found.step_bound_s if energy_minimal else self.found.lower_bound_s


def reach(context: SearchContext) -> Reached:
    """The layouts of a plan for the objective of the options, over settings that may vary.

    Objectives other than the step time keep the settings of the fastest layout with even stages;
    on unlike node groups, and with uneven stages alone, those of the job.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    options, name = context.options, context.options.objective
    own_settings = name == "context" or (name == "gpus" and options.deadline_days is None)
    if wants_uneven(options) or own_settings:
        return _GOALS[name](context)
    if name == "time":
        return Reached.of(fastest(context, options.combinations(context)))
    if is_heterogeneous(context.job.cluster):
        return _GOALS[name](context)
    context, settings = settings_of_fastest(context)
    return replace(_GOALS[name](context), settings=settings)


def _fastest(context: SearchContext) -> Reached:
    return Reached.of(fastest(context))


def _memory_minimal(context: SearchContext) -> Reached:
    """The fastest first: the slack is counted from its step, whatever its stages."""
    fastest = _fastest(context)
    found, uneven_result = fastest.found, fastest.uneven_result
    if found.finalists is None:
        return fastest
    incumbent_s, deadline = value_of(found, uneven_result), longest_step(context)
    if incumbent_s > deadline:
        raise too_late(context, incumbent_s, even=not looks_for_uneven(context))
    limit = min(incumbent_s * (1 + context.options.slack_fraction), deadline)
    finalists, top = found.finalists, context.options.top
    known = [] if uneven_result is None or uneven_result.table is None else [uneven_result.table]
    if found.value <= limit:
        known.append(finalists.take(np.array([0])))
    min_memory = memory_minimal(context, LayoutTable.concat(known), limit)
    target = Target(
        name="memory",
        unit=UNITS["memory"],
        per="step",
        value=min_memory.used_bytes,
        lower_bound=min_memory.lower_bound_bytes,
        step_time_limit_s=limit,
    )
    others = (
        finalists if uneven_result is None else joined(finalists, uneven_result, top) or finalists
    )
    first = _first(min_memory.layout, others, top)
    return Reached(
        context,
        replace(found, finalists=first, lower_bound_s=lower_bound_of(found, uneven_result)),
        target,
    )


def _cheapest(context: SearchContext) -> Reached:
    size = cheapest_size(context, context.options.objective)
    return _none(context) if size.found is None else _of_size(size, size.found)


def _fewest(context: SearchContext) -> Reached:
    """The fastest layout on the fewest GPUs that meet the deadline, or without one hold the job."""
    size = fewest_gpus(context)
    if size.found is None:
        return _none(context)
    if context.options.deadline_days is not None:
        return _of_size(size, size.found)
    answer = fastest(size.context, context.options.combinations(size.context))
    if answer.target is None:
        return _of_size(size, size.found)
    top = num_finalists(size.context)
    found, uneven = _with_splits(answer.found, answer.uneven_result, np.inf, top)
    target = _target(size, size.value)
    return Reached(answer.context, found, target, settings=answer.settings, uneven=uneven)


def _longest(context: SearchContext) -> Reached:
    """The longest sequence that trains, and the fastest layout of it."""
    best, rungs = ladder(context)
    if best.found is None:
        return _none(best.context)
    fastest = _fastest(best.context)
    if fastest.target is None:
        return fastest
    tokens = float(best.context.job.training.seq_length)
    target = Target(
        name="context",
        unit=UNITS["context"],
        per="step",
        value=tokens,
        lower_bound=tokens,
        step_time_limit_s=fastest.target.step_time_limit_s,
        limit=rungs[-1].limit,
        ladder=rungs,
    )
    return replace(fastest, target=target)


def _of_size(size: BestSize, known: SearchResult) -> Reached:
    """The whole search on the size chosen, for the alternatives; what is known if time is short."""
    context, job, name = size.context, size.context.job, size.context.options.objective
    limit, top = longest_step(context), num_finalists(context)
    found = context.search(figure_of(name), most_seconds=limit, top=top).run(context.budget)
    found = found if found.complete else known
    uneven_result = size.uneven_result
    if (
        name == "gpus"
        and splits_freely(context, context.options)
        and not context.options.only_answer
    ):
        uneven_result = _faster(
            uneven_result,
            faster_splits(
                context, EvenAnswer.of(context.group, found), np.nextafter(limit, np.inf)
            ),
        )
    found, uneven = _with_splits(found, uneven_result, limit, top)
    value = size.value if name == "gpus" else found.value * scale_of(job, name)
    return Reached(context, found, _target(size, value), uneven=uneven)


def _target(size: BestSize, value: float) -> Target:
    """What is reached on the size chosen, and on the others."""
    job, name, limit = size.context.job, size.context.options.objective, longest_step(size.context)
    return Target(
        name=name,
        unit=UNITS.get(name, job.cluster.currency),
        per="run" if job.training.tokens else "step",
        value=value,
        lower_bound=min(size.lower_bound, value),
        step_time_limit_s=limit if np.isfinite(limit) else None,
        tried=size.tried,
    )


def _faster(one: UnevenResult | None, other: UnevenResult) -> UnevenResult:
    """The better of two searches of one job."""
    if one is None or one.table is None:
        return other
    return one if other.table is None or one.step_time_s < other.step_time_s else other


def _with_splits(
    found: SearchResult, uneven_result: UnevenResult | None, limit: float, top: int
) -> tuple[SearchResult, UnevenStages | None]:
    """An even answer, or a faster one with uneven stages before it; none is slower than a limit."""
    if uneven_result is None:
        return found, None
    in_time = found.finalists if found.value <= limit else None
    changed = replace(
        found,
        finalists=joined(in_time, uneven_result, top),
        lower_bound_s=lower_bound_of(found, uneven_result),
        value=value_of(found, uneven_result),
    )
    return changed, proof_of(found, uneven_result) if np.isfinite(found.value) else None


def _none(context: SearchContext) -> Reached:
    """No size has an answer: nothing fits, or nothing that fits is fast enough."""
    fastest = context.search().run(context.budget)
    if fastest.finalists is not None:
        raise too_late(context, fastest.value, even=context.traits.pipeline.splits_freely)
    return Reached(context, fastest, None)


def too_late(context: SearchContext, step_s: float, *, even: bool) -> SpecError:
    """The fastest layout found, maybe of those with even stages, misses the deadline."""
    taken = step_s * (run_steps(context.job) or 1)
    wanted = (context.options.deadline_days or 0.0) * SECONDS_PER_DAY
    stages = " with even stages" if even else ""
    return SpecError(
        f"no layout that was found ends the run in {_long(wanted)}: the fastest{stages} on all "
        f"{context.job.cluster.num_gpus} GPUs takes {_long(taken)}: raise --deadline, lower "
        "--tokens, or give more nodes"
    )


def _long(value_seconds: float) -> str:
    size, unit = long_unit(value_seconds)
    return f"{value_seconds / size:.4g} {unit}"


def _first(chosen: LayoutTable, others: LayoutTable, most: int) -> LayoutTable:
    """The chosen layout before the others, once."""
    same = [others.row(i) == chosen.row(0) for i in range(len(others))]
    rest = others.take(np.flatnonzero(~np.array(same))[: most - 1])
    return LayoutTable.concat([chosen, rest])


_GOALS: Mapping[Name, Callable[[SearchContext], Reached]] = {
    "time": _fastest,
    "memory": _memory_minimal,
    "cost": _cheapest,
    "energy": _cheapest,
    "gpus": _fewest,
    "context": _longest,
}
