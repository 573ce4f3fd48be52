"""A finished search with even stages, gone on with uneven ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.calibrated import machine_for
from costmodel.runtimes import traits_of
from costmodel.spec.job import Job
from costmodel.table import LayoutTable
from planner.constraints import legality_rules
from planner.free_splits import FreeFound, FreeSplits
from planner.goals import Reached
from planner.options import SearchOptions
from planner.plan import UnevenStages
from planner.probes import Prober
from planner.search import Found


def splits_freely(job: Job, options: SearchOptions) -> bool:
    """Does the runtime take any split of the layers, and the user too?

    Clusters of unlike groups have a search of their own.
    """
    held = any(choice.field == "stages" for choice in options.choices)
    return traits_of(job).splits_freely and not held and len(job.cluster.groups) == 1


def with_uneven_stages(prober: Prober, reached: Reached) -> tuple[Reached, UnevenStages | None]:
    """The same answer, or a faster one whose stages are uneven; and what is proven of them."""
    job, options, found = reached.job, prober.options, reached.found
    wanted = options.objective == "time" and not options.only_answer
    if not wanted or reached.target is None or not splits_freely(job, options):
        return reached, None
    free = _searched(prober, job, found)
    proof = UnevenStages(
        even_step_time_s=found.value,
        even_lower_bound_s=min(found.lower_bound_s, found.value),
        lower_bound_s=free.lower_bound_s,
        judged=free.judged,
    )
    bound = min(found.lower_bound_s, free.lower_bound_s)
    target = reached.target.model_copy(update={"value": free.step_time_s, "lower_bound": bound})
    finalists = _joined(found.finalists, free, options.top)
    changed = replace(found, finalists=finalists, lower_bound_s=bound, value=free.step_time_s)
    return replace(reached, found=changed, target=target), proof


def _searched(prober: Prober, job: Job, found: Found) -> FreeFound:
    """What uneven stages give; where no time is left, that no split beats the floor."""
    if prober.budget.spent() or not found.complete or found.finalists is None:
        return FreeFound(None, found.value, min(found.floor_s, found.value), 0)
    rules = [*(choice.rule() for choice in prober.options.choices), *legality_rules(job)]
    machine = machine_for(job, prober.measured)
    splits = FreeSplits(job, machine, rules, prober.usable_bytes(job), found.value)
    splits.try_first(found.finalists, prober.budget)
    return splits.run(prober.budget)


def _joined(finalists: LayoutTable | None, free: FreeFound, top: int) -> LayoutTable | None:
    """The finalists behind the faster layout, without the one it is a split of."""
    if free.table is None or finalists is None:
        return finalists
    degrees = ("tp", "cp", "pp", "ep", "etp")
    same = np.all(
        [getattr(finalists, name) == getattr(free.table, name) for name in degrees], axis=0
    )
    kept = finalists.take(~same)
    return LayoutTable.concat([free.table, kept.take(np.arange(min(len(kept), top - 1)))])
