"""The whole search of a job: its objective, then what lies outside the tree of even stages."""

from trainplan.planner.goals.after_even import with_uneven_stages
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.reach import Reached, reach
from trainplan.planner.goals.with_groups import with_groups


def answer(context: SearchContext) -> Reached:
    """The layouts of a plan; no deadline is asked for yet.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    if context.options.objective == "context":
        return reach(context)
    # The objective over settings and stages: no layout of the grid is better than the bound.
    reached = reach(context)
    # Unlike node groups: nor is one whose pipeline ranks live in one group each.
    reached = with_groups(context, reached)
    # Uneven stages, maybe searched beside even ones: nor is one with any other split of the layers.
    return with_uneven_stages(reached)
