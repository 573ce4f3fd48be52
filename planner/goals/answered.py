"""The whole search of a job: its objective, then what lies outside the tree of even stages."""

from trainplan.planner.goals.after_even import with_uneven_stages
from trainplan.planner.goals.best_part import best_part
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.reach import Reached, reach
from trainplan.planner.goals.uneven import wants_uneven
from trainplan.planner.goals.with_groups import with_groups


def answer(context: SearchContext) -> Reached:
    """The layouts of a plan; no deadline is applied yet.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    options = context.options
    if not uses_all_nodes(context):
        return best_part(context)
    if options.objective != "time":
        return reach(context)
    # No layout of the grid is below the bound, nor one in groups, nor one with uneven stages.
    return with_uneven_stages(with_groups(context, reach(context)))


def uses_all_nodes(context: SearchContext) -> bool:
    """Is no part of the cluster searched by itself?"""
    options = context.options
    alone = options.whole_cluster or options.tower == "apart" or wants_uneven(options)
    return options.objective in ("memory", "context") or (options.objective == "time" and alone)
