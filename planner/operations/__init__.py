"""What goes with a launch beside its layout: settings of a production run, and its checkpoints.

with_operations: a launch with what a production run has.
"""

from trainplan.planner.operations.settings import with_operations
