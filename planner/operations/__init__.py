"""What goes with a launch and its layout: settings of a production run, and its checkpoints.

checkpoint_move: what a checkpoint of one plan needs before another can load it.
checkpoint_note: what the checkpoints of a launch can be loaded by.
CheckpointMove: a checkpoint of one plan in the hands of another.
loadable: what may differ from a layout that saved.
Loadable: fields of layouts that may differ where one loads a checkpoint of another.
Loads: as it is, after a command, weights alone, no, or not known.
SAVE_STEPS: field of a reading, the steps between two saves.
saves_of: how the run of a job is saved.
with_operations: a launch with what a production run has.
with_saves: a launch that saves as its plan is priced.
with_saves_read: a reading with what its launch states of saves.
"""

from trainplan.planner.operations.checkpoints import (
    CheckpointMove,
    Loadable,
    Loads,
    checkpoint_move,
    checkpoint_note,
    loadable,
)
from trainplan.planner.operations.read_saves import SAVE_STEPS, with_saves_read
from trainplan.planner.operations.saves import saves_of
from trainplan.planner.operations.settings import with_operations, with_saves
