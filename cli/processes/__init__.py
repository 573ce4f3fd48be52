"""Processes that share the work of a search, or are begun for one call.

follow_search: control-C is left to the search; where that was killed, its processes end too.
Process: another process, and the line to it.
Processes: those that share the tasks of a search, as `planner.work` has them shared.
ProcessResult: what came of a task: its result or its error.
START: how a process starts.
tried: what comes of some work, errors included.
"""

from trainplan.cli.processes.process import START, Process, ProcessResult, follow_search, tried
from trainplan.cli.processes.processes import Processes
