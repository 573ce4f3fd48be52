"""Time, progress and processes, as arguments: the search itself knows no clock and starts none.

A `Budget` states when to stop, `Workers` run pieces of work at the same time; no answer depends on
how the work was shared.

AffinityPartition: gives equal pipelines always to the same worker.
ALONE: workers that are this process alone.
Budget: how long a search may go on, and who receives its progress.
Deadline: when a solver has to answer with what it has.
DeadlineBudget: a budget that a deadline ends, with no listener.
part_of: the first part of what a time limit leaves.
parts_of: the table in pieces that are priced at once.
run_together: open the search with the smallest bound until none can win.
Task: a piece of work that needs nothing but itself, so that another process may do it.
TaskBudget: a budget that ends as another does, but hurries no task.
Unlimited: no limit, no listener.
Workers: who does the work, made by the caller.
"""

from trainplan.planner.work.budget import (
    ALONE,
    Budget,
    Deadline,
    DeadlineBudget,
    Task,
    TaskBudget,
    Unlimited,
    Workers,
    part_of,
)
from trainplan.planner.work.together import AffinityPartition, parts_of, run_together
