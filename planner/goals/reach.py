"""The objectives of a search: each finds the layouts of a plan and states what is proved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import SECONDS_PER_DAY, SpecError, long_unit
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import refuse_endless, run_steps, stretch_of
from trainplan.planner.goals.cluster_sizes import longest_step, lower_bound_of, value_of
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.fastest import Fastest, fastest, settings_of_fastest
from trainplan.planner.goals.longest import ladder
from trainplan.planner.goals.memory_minimal import memory_minimal
from trainplan.planner.goals.uneven import (
    joined,
    looks_for_uneven,
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
    """The layouts of a plan on the whole cluster, over settings that may vary.

    `memory` keeps the settings of the fastest layout with even stages; on different node groups,
    and with uneven stages alone, those of the job.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    options = context.options
    if options.objective == "context":
        return _longest(context)
    if options.objective != "memory":
        alone = wants_uneven(options)
        every = () if alone else options.combinations(context)
        return Reached.of(fastest(context, every))
    if is_heterogeneous(context.job.cluster):
        return _memory_minimal(context)
    context, settings = settings_of_fastest(context)
    return replace(_memory_minimal(context), settings=settings)


def _memory_minimal(context: SearchContext) -> Reached:
    """The fastest first: the slack is counted from its step, whatever its stages."""
    reached = Reached.of(fastest(context))
    found, uneven_result = reached.found, reached.uneven_result
    if found.finalists is None:
        return reached
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


def _longest(context: SearchContext) -> Reached:
    """The longest sequence that trains, and the fastest layout of it."""
    best, rungs = ladder(context)
    if best.found is None:
        return out_of_reach(best.context)
    reached = Reached.of(fastest(best.context))
    if reached.target is None:
        return reached
    tokens = float(best.context.job.training.seq_length)
    target = Target(
        name="context",
        unit=UNITS["context"],
        per="step",
        value=tokens,
        lower_bound=tokens,
        step_time_limit_s=reached.target.step_time_limit_s,
        limit=rungs[-1].limit,
        ladder=rungs,
    )
    return replace(reached, target=target)


def out_of_reach(context: SearchContext) -> Reached:
    """Nothing fits, or nothing that fits is fast enough."""
    found = context.search().run(context.budget)
    if found.finalists is not None:
        raise too_late(context, found.value, even=context.traits.pipeline.splits_freely)
    return Reached(context, found, None)


def too_late(context: SearchContext, step_s: float, *, even: bool) -> SpecError:
    """The fastest layout found, maybe of those with even stages, misses the deadline.

    Raises:
        SpecError: Nodes fail so often that no run ends.
    """
    refuse_endless(context.job)
    taken = step_s * (run_steps(context.job) or 1) * stretch_of(context.job)
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
