"""Trials of `plan tune`: what is tuned, how they are launched, and the folder that keeps them.

Request: what is trained where no plan states it.
check_gpus_here: are the GPUs of the job on this machine? Raises.
check_processes_stand_for: do processes of this machine run what the job is for? Raises.
Exported: exported files, a folder for each trial, and a way to start them.
free_folder: `name-1`, or the first number that is free.
InProcesses: training in processes of this machine, without launch files.
Kept: where the trials are kept.
Limits: when it ends.
on_paper: the machine of a file.
PLAN: the file of its plan.
PROFILE: the file of what was measured of this machine.
remark_load: warns where others use what trials of this machine need.
trainer_of: what trains as the runtime of a plan does.
TrialLauncher: one way to run trials.
tuned_question: what is tuned where no plan states it, measured on this machine where none is named.
TuningFolder: the folder of one run, which it holds alone while the block lasts.
Way: how trials are launched.
"""

from trainplan.cli.trials.folder import PLAN, PROFILE, TuningFolder, free_folder
from trainplan.cli.trials.launches import (
    Exported,
    InProcesses,
    TrialLauncher,
    check_gpus_here,
    check_processes_stand_for,
    on_paper,
    remark_load,
    trainer_of,
)
from trainplan.cli.trials.question import Kept, Limits, Request, Way, tuned_question
