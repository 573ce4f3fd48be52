"""Processes that measure: how they start, find each other, go from task to task, and end.

Budget: how long a run may take, start and end included.
default_nproc: processes of a node.
Device: `cuda` or `cpu`.
device_of: what is measured on a node with that many GPUs.
Files: what a run writes, on node 0.
Launch: processes of a run, and this node's part in it.
launch_script: a bash script around `command`, `plan profile ..` without the options of the
    launch.
LauncherKind: what starts the ranks: `torchrun` or `slurm`.
notes: what of the request is not measured, for the user.
num_gpus: GPUs that torch may use on this node, queried in another process.
request_for: a request with what is `stated`, by field of `Request`, and the device's defaults
    else.
run: measure what the journal does not have yet.
StoppedByUser: the run got a signal to end, and has.
"""

from trainplan.profiler.launch.launch import StoppedByUser, default_nproc, num_gpus, run
from trainplan.profiler.launch.paths import Files, Launch
from trainplan.profiler.launch.requests import Device, device_of, notes, request_for
from trainplan.profiler.launch.scheduler import Budget
from trainplan.profiler.launch.script import LauncherKind, launch_script
