"""What `--trusted` costs: the same search without it."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.spec import Job
from trainplan.planner.evidence.trusted import trusted_rules
from trainplan.planner.goals.answer import answer
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.plan.target import Target, Trusted


def price_of_trust(context: SearchContext, job: Job, target: Target) -> Trusted | None:
    """The objective with the rules of `trusted` beside that of a second search without them.

    The layouts of the first are among those of the second, so no objective of the second is worse
    than the target's. Where no time is left the second search gives a bound alone.
    Source: derived; dropping rules only adds layouts.
    """
    options = context.options
    if not options.trusted:
        return None
    free = options.model_copy(update={"trusted": False, "top": 1})
    try:
        found = answer(replace(context, options=free), job).target
    except PlanError:  # no time was left for any layout
        found = None
    value = min(target.value, found.value) if found else target.value
    return Trusted(
        rules=tuple(rule.name for rule in trusted_rules(job)),
        value_without=value,
        lower_bound_without=min(found.lower_bound, value) if found else None,
        cost_fraction=target.value / value - 1 if value else 0.0,
    )
