"""Time, progress and processes, as arguments: the search itself knows no clock and starts none.

A `Budget` says when to stop, `Workers` run pieces of work at the same time; no answer depends on
how the work was shared.
"""

from trainplan.planner.work.budget import Budget, Deadline
from trainplan.planner.work.workers import ALONE, Workers

__all__ = ["ALONE", "Budget", "Deadline", "Workers"]
