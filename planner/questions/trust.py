"""What `--trusted` and `--reserve` cost: the same search without the one or the other."""

from dataclasses import replace

from trainplan.planner.evidence import trusted_rules
from trainplan.planner.goals import SearchContext, answer
from trainplan.planner.plan import Reserve, SearchOptions, Target, Trusted
from trainplan.planner.work import Budget, part_of

SHARE_OF_PRICE = 1 / 3
"""Of a time limit, kept for the searches without `trusted` and without a reserve. Source: assumed;
a price needs less proof than an answer."""


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
