"""What `--trusted` costs: the same search without it."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from trainplan.costmodel.spec import Job
from trainplan.planner.evidence.trusted import trusted_rules
from trainplan.planner.goals.answer import answer
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan import SearchOptions
from trainplan.planner.plan.target import Target, Trusted
from trainplan.planner.work import Budget
from trainplan.planner.work.budget import ReservingBudget

SHARE_OF_PRICE = 1 / 3
"""Of a time limit, kept for the search without `trusted`. Source: assumed; a price needs less proof
than an answer."""


def time_for_answer(options: SearchOptions, budget: Budget) -> Budget:
    """A time limit without what the search for the price may take."""
    left_s = budget.seconds_left()
    limited = options.trusted and not options.only_answer and isfinite(left_s)
    return ReservingBudget(budget, left_s * SHARE_OF_PRICE) if limited else budget


def price_of_trust(context: SearchContext, job: Job, target: Target) -> Trusted | None:
    """The objective with the rules of `trusted` beside that of a second search without them.

    Every layout of the first is one of the second, so the best of the second is no worse than the
    target; where the time was too short to find it, the target stands for it. Without any time
    left, nothing is known.
    """
    options = context.options
    if not options.trusted:
        return None
    free = options.model_copy(update={"trusted": False, "top": 1})
    found = None
    if not context.budget.spent():
        found = answer(replace(context, options=free), job).target
    value = min(target.value, found.value) if found else target.value
    return Trusted(
        rules=tuple(rule.name for rule in trusted_rules(job)),
        value_without=value,
        lower_bound_without=min(found.lower_bound, value) if found else None,
        cost_fraction=target.value / value - 1 if value else 0.0,
    )
