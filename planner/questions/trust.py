"""What `--trusted` and `--reserve` cost, and what an answer outside gains on the best inside.

Each is the same search with or without the one or the other.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.job import Job
from trainplan.costmodel.timeline import EQUALS
from trainplan.planner.evidence import OPTION, Beyond, trusted_rules, unmeasured
from trainplan.planner.goals import Reached, SearchContext, answer
from trainplan.planner.plan import (
    InsideMeasured,
    Name,
    Plan,
    Reserve,
    SearchOptions,
    Target,
    Trusted,
)
from trainplan.planner.work import Budget, DeadlineBudget, part_of

SHARE_OF_PRICE = 1 / 3
"""Of a time limit, kept for the searches without `trusted` and without a reserve. Source: assumed;
a price needs less proof than an answer."""
SHARE_OF_INSIDE = 1 / 4
"""Of a time limit, kept for a search inside what was measured. Source: assumed; its space is small,
and where the limit strikes it may know a better layout than the search of the whole space."""

CHOSEN: Mapping[Name, str] = {
    "context": "seq_length",
    **dict.fromkeys(("cost", "energy", "gpus"), "num_gpus"),
}
"""What a job states and an objective chooses, by the objective."""


def missing(context: SearchContext) -> tuple[Beyond, ...]:
    """What keeps every layout of a job outside, under the settings that are nearest to any run."""
    options = context.options
    jobs: list[Job] = [one.job for one in options.combinations(context)]
    every = (
        tuple(one for one in unmeasured(job) if one.axis != CHOSEN.get(options.objective))
        for job in jobs
    )
    return min(every, key=len)


def check_trusted(context: SearchContext) -> None:
    """Is any layout of the job inside what was measured?

    Raises:
        SpecError: None is, under `trusted`; the message has all that is missing.
    """
    found = missing(context) if context.options.trusted else ()
    if found:
        texts = "; ".join(one.text for one in found)
        raise SpecError(
            f"{OPTION}: no layout of this job is inside what was measured: {texts}: drop {OPTION}, "
            "or change what these name"
        )


def _may_be_inside(context: SearchContext) -> bool:
    """Is there a layout inside what was measured that a search may have missed?"""
    options = context.options
    free = not options.trusted and not options.only_answer and options.tower != "apart"
    return free and options.objective != "context" and not missing(context)


def time_before_inside(context: SearchContext, limit: Budget) -> Budget:
    """A limit of the step time's search without what the one inside may take."""
    kept = context.options.objective == "time" and not context.job.reserves
    return part_of(limit, 1 - SHARE_OF_INSIDE) if kept and _may_be_inside(context) else limit


def searched_inside(context: SearchContext) -> Reached | None:
    """The best layouts with even stages inside what was measured; null: none, or no time left."""
    options = context.options.model_copy(update={"trusted": True, "only_answer": True})
    own = replace(context, options=options, budget=DeadlineBudget(context.budget))
    try:
        reached = None if own.budget.spent() else answer(own)
    except PlanError:  # none within the deadline
        return None
    return reached if reached and reached.target and reached.found.finalists is not None else None


def or_inside(reached: Reached, inside: Reached | None) -> Reached:
    """What a search found, or what one inside what was measured did, where that is better.

    The bound stays that of the whole space.
    """
    if inside is None or inside.target is None or inside.found.value >= reached.found.value:
        return reached
    bound = min(reached.found.lower_bound_s, inside.found.value)
    found = replace(
        inside.found,
        space=reached.found.space,
        refused=reached.found.refused,
        lower_bound_s=bound,
        complete=False,
    )
    settings = inside.settings
    if reached.settings:
        chosen = settings.chosen if settings else ()
        settings = reached.settings.model_copy(update={"chosen": chosen})
    return Reached(
        replace(inside.context, options=reached.context.options, budget=reached.context.budget),
        found,
        inside.target.model_copy(update={"lower_bound": bound}),
        settings=settings,
    )


def best_inside(
    context: SearchContext, plan: Plan, known: Reached | None = None
) -> InsideMeasured | None:
    """Where a plan is beyond what was measured: what `known` or a search has inside, else a row.

    Rows are under the settings of the answer, which may be what nobody measured.
    """
    target = plan.certificate.objective
    if plan.best.inside_measured is not False or not _may_be_inside(context):
        return None
    of_answer = target.answer_value
    rows = (one for one in plan.candidates if one.inside_measured and target.name == "time")
    row = next(rows, None)
    found = known or searched_inside(context)
    value = found.target.value if found and found.target else inf
    if row and row.estimate.step_time_s <= value * EQUALS:
        chosen, value = plan.certificate.settings, row.estimate.step_time_s
        layout, rank = row.layout, row.rank
    elif found and found.found.finalists is not None:
        chosen, layout, rank = found.settings, found.found.finalists.row(0), None
    else:
        return None
    return InsideMeasured(
        layout=layout,
        settings=chosen.chosen if chosen else (),
        rank=rank,
        value=value,
        cost_fraction=value / of_answer - 1 if of_answer else 0.0,
    )


def time_for_answer(options: SearchOptions, budget: Budget, *, reserve: bool = False) -> Budget:
    """A time limit without what the searches for the prices may take."""
    priced = not options.only_answer and (options.trusted or reserve)
    return part_of(budget, 1 - SHARE_OF_PRICE) if priced else budget


def price_of_trust(context: SearchContext, target: Target) -> Trusted | None:
    """The objective with the rules of `trusted` beside that of a second search without them."""
    options = context.options
    if not options.trusted:
        return None
    free = options.model_copy(update={"trusted": False})
    value, bound = _searched(replace(context, options=free), target)
    return Trusted(
        rules=tuple(rule.name for rule in trusted_rules(context.job)),
        value_without=value,
        lower_bound_without=bound,
        cost_fraction=target.value / value - 1 if value else 0.0,
    )


def price_of_reserve(context: SearchContext, target: Target) -> Reserve | None:
    """The objective with the reserve beside that of a second search without it."""
    if not context.job.reserves:
        return None
    whole = context.job.model_copy(update={"reserve_bytes": 0, "reserve_host_bytes": 0})
    value, bound = _searched(context.with_job(whole), target)
    return Reserve(
        reserve_bytes=context.job.reserve_bytes,
        reserve_host_bytes=context.job.reserve_host_bytes,
        value_without=value,
        lower_bound_without=bound,
        cost_fraction=target.value / value - 1 if value else 0.0,
    )


def _searched(context: SearchContext, target: Target) -> tuple[float, float | None]:
    """Objective of a freer search, and its bound.

    Every layout of the search that is priced is one of the freer, so the best of that is no worse
    than the target; where the time was too short to find it, the target stands for it. Without any
    time left, nothing is known. Of `memory`, the limit of the step time moves with the fastest
    layout, so the freer search may need more of it.
    """
    options = context.options.model_copy(update={"top": 1})
    found = None
    if not context.budget.spent():
        found = answer(replace(context, options=options)).target
    if found is None:
        return target.value, None
    value = found.value if target.name == "memory" else min(target.value, found.value)
    return value, min(found.lower_bound, value)
