"""What goes with a launch beside its layout: settings of a production run, and its checkpoints.

checkpoint_move: what a checkpoint of one plan needs before another can load it.
checkpoint_note: what the checkpoints of a launch can be loaded by.
CheckpointMove: a checkpoint of one plan in the hands of another.
Loads: as it is, after a command, weights alone, no, or not known.
with_operations: a launch with what a production run has.
"""

from trainplan.planner.operations.checkpoints import (
    CheckpointMove,
    Loads,
    checkpoint_move,
    checkpoint_note,
)
from trainplan.planner.operations.settings import with_operations
