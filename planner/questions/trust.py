"""What `--trusted` and `--reserve` cost, and the answer where the best is like no published run.

Each is the same search with or without the one or the other.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.job import Job
from trainplan.planner.evidence import (
    OPTION,
    Beyond,
    trusted_rules,
    unmeasured,
    unpublished,
)
from trainplan.planner.goals import Reached, SearchContext, answer
from trainplan.planner.plan import (
    Name,
    NotTaken,
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
SHARES_OF_PUBLISHED = {True: 1 / 2, False: 1 / 4}
"""Of a time limit, kept for a search of layouts like published ones, with experts and without: the
best of a mixture of experts is seldom like one. Source: assumed; where the limit strikes, it may
know a better one than the search of the whole space."""

CLAIM = 0.1
"""What a layout that ran on no GPU of its architecture may claim over the best of those that did
and still come first. Source: assumed; of 20 larger claims over published recipes a third were no
gain, of smaller ones few were large (docs/explanation/search.md)."""

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


def _prefers_published(options: SearchOptions) -> bool:
    """May the answer be another than the best, where no published run is like it?"""
    held = options.trusted or options.published or options.only_answer
    free = not held and options.slack_fraction > 0
    return free and options.tower != "apart" and options.objective != "context"


def time_before_published(context: SearchContext, limit: Budget) -> Budget:
    """A limit of the step time's search without what the one for published layouts may take."""
    kept = context.options.objective == "time" and not context.job.reserves
    free = kept and _prefers_published(context.options)
    share = SHARES_OF_PUBLISHED[context.job.model.moe is not None]
    return part_of(limit, 1 - share) if free else limit


def searched_published(context: SearchContext, *, generation: bool = False) -> Reached | None:
    """The best layouts like published ones; null: none is in time, or no time is left.

    With `generation` like those on GPUs of its architecture.
    """
    how = {"published": True, "generation": generation}
    options = context.options.model_copy(update=how)
    own = replace(context, options=options, budget=DeadlineBudget(context.budget))
    try:
        reached = None if own.budget.spent() else answer(own)
    except PlanError:  # none within the deadline
        return None
    if reached is None or reached.target is None or reached.found.finalists is None:
        return None
    target = reached.target
    late = target.name == "time" and target.value > (target.step_time_limit_s or inf)
    return None if late else reached


def or_published(reached: Reached, other: Reached | None) -> Reached:
    """What a search found, or what one for published layouts did, where that is better.

    The bound stays that of the whole space. Where the other uses a part of the cluster that the
    search had no time to try, nothing is known.
    """
    if other is None or other.target is None or other.found.value >= reached.found.value:
        return reached
    known = reached.target
    covers = other.job.cluster == reached.job.cluster or (known is not None and known.tried_all)
    bound = known.lower_bound if known else reached.found.lower_bound_s
    bound = min(bound, other.found.value) if covers else 0.0
    tried = (known.tried, known.tried_all) if known else ((), False)
    found = replace(
        other.found,
        space=reached.found.space,
        refused=reached.found.refused,
        lower_bound_s=bound,
        complete=False,
    )
    settings = other.settings
    if reached.settings:
        chosen = settings.chosen if settings else ()
        settings = reached.settings.model_copy(update={"chosen": chosen})
    return Reached(
        replace(other.context, options=reached.context.options, budget=reached.context.budget),
        found,
        other.target.model_copy(
            update={"lower_bound": bound, "tried": tried[0], "tried_all": tried[1]}
        ),
        settings=settings,
    )


def published_instead(
    context: SearchContext, reached: Reached, plan: Plan, known: Reached | None
) -> tuple[Reached, NotTaken] | None:
    """What to answer where no published run is like a plan; null: the plan.

    A plan that is like none on GPUs of its architecture comes second where it claims more than
    `CLAIM`. `known`: the best like these, where a limit struck.
    """
    best, chosen = plan.best.layout, plan.certificate.settings
    free, fixed = _prefers_published(context.options), context.options.chosen
    beyond = unpublished(reached.context, best, fixed) if free else ()
    other = (known or searched_published(context)) if beyond else None
    if free and not beyond and not _is_near_published(reached, plan):
        beyond = unpublished(reached.context, best, fixed, generation=True)
        other = known or searched_published(context, generation=True)
        if other and other.found.value <= plan.certificate.objective.value * (1 + CLAIM):
            return None
    if other is None:
        return None
    return other, NotTaken(
        layout=best,
        settings=chosen.chosen if chosen else (),
        beyond=tuple(one.text for one in beyond),
    )


def _is_near_published(reached: Reached, plan: Plan) -> bool:
    """Is a listed layout within `CLAIM` of the fastest like some on GPUs of its architecture?"""
    own = reached.context
    limit = plan.fastest.estimate.step_time_s * (1 + CLAIM)
    return plan.certificate.objective.name != "time" or any(
        not unpublished(own, one.layout, own.options.chosen, generation=True)
        for one in plan.candidates
        if one.estimate.step_time_s <= limit
    )


def with_price_of_published(plan: Plan, other: Reached, free: Plan, not_taken: NotTaken) -> Plan:
    """A plan like published runs, with its objective and that of the best of all layouts."""
    without, target = free.certificate.objective, plan.certificate.objective
    trusted = Trusted(
        rules=tuple(rule.name for rule in other.context.options.rules_of_evidence(other.context)),
        value_without=without.value,
        lower_bound_without=without.lower_bound,
        cost_fraction=_cost(target, without.value),
        not_taken=not_taken,
    )
    certificate = plan.certificate.model_copy(update={"trusted": trusted})
    return plan.model_copy(update={"certificate": certificate})


def time_for_answer(options: SearchOptions, budget: Budget, *, reserve: bool = False) -> Budget:
    """A time limit without what the searches for the prices may take."""
    priced = not options.only_answer and (options.trusted or reserve)
    return part_of(budget, 1 - SHARE_OF_PRICE) if priced else budget


def price_of_trust(context: SearchContext, target: Target) -> Trusted | None:
    """The objective with the rules of `trusted`, and that of a second search without them."""
    options = context.options
    if not options.trusted:
        return None
    free = options.model_copy(update={"trusted": False})
    value, bound = _searched(replace(context, options=free), target)
    return Trusted(
        rules=tuple(rule.name for rule in trusted_rules(context.job)),
        value_without=value,
        lower_bound_without=bound,
        cost_fraction=_cost(target, value),
    )


def price_of_reserve(context: SearchContext, target: Target) -> Reserve | None:
    """The objective with the reserve, and that of a second search without it."""
    if not context.job.reserves:
        return None
    whole = context.job.model_copy(update={"reserve_bytes": 0, "reserve_host_bytes": 0})
    value, bound = _searched(context.with_job(whole), target)
    return Reserve(
        reserve_bytes=context.job.reserve_bytes,
        reserve_host_bytes=context.job.reserve_host_bytes,
        value_without=value,
        lower_bound_without=bound,
        cost_fraction=_cost(target, value),
    )


def _cost(target: Target, without: float) -> float:
    """How much worse a figure is than that of a freer search; tokens are better where more."""
    worse = target.value / without - 1 if without else 0.0
    return -worse if target.name == "context" else worse


def _searched(context: SearchContext, target: Target) -> tuple[float, float | None]:
    """Objective of a freer search, and its bound.

    Every layout of the search that is priced is one of the freer, so the best of that is no worse
    than the target; where the time was too short to find it, the target is used for it. Without any
    time left, nothing is known. Of `memory`, the limit of the step time moves with the fastest
    layout, so the freer search may need more of it.
    """
    options = context.options.model_copy(update={"top": 1})
    found = None
    if not context.budget.spent():
        found = answer(replace(context, options=options)).target
    if found is None:
        return target.value, None
    if target.name == "context":
        value = max(target.value, found.value)
        return value, value
    value = found.value if target.name == "memory" else min(target.value, found.value)
    return value, min(found.lower_bound, value)
