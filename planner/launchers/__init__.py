"""From a launch configuration to the file that starts it, one way of starting per module.

cpu_launch: a launch as processes of a CPU run it for a few steps.
CPU_STARTS: how launches of a runtime start without a GPU, by its name.
CpuStart: one of them.
FOLDER: pattern of the folder of a trial.
HOSTFILE: name of the file of nodes.
hostfile: the nodes in rank order, in the form DeepSpeed and Open MPI read.
launcher: one way to start a job.
LAUNCHERS: launcher of every way to start a job, by name.
launches_of_manifest: those inside manifests of Kubernetes, tasks of SkyPilot and the like.
LaunchFile: a file that starts the training.
one_rank: a launch of one process in the place of all, and its script.
trials: the job that runs a plan's layouts one after the other, as a file.
"""

from trainplan.planner.launchers.manifests import launches_of_manifest
from trainplan.planner.launchers.on_cpu import CPU_STARTS, CpuStart, cpu_launch
from trainplan.planner.launchers.one_rank import one_rank
from trainplan.planner.launchers.registry import LAUNCHERS, launcher
from trainplan.planner.launchers.script import HOSTFILE, LaunchFile, hostfile
from trainplan.planner.launchers.slurm import FOLDER, trials
