"""From a launch configuration to the file that starts it, one way of starting per module.

To add one: a module with its `Launcher`, and its line in `LAUNCHERS`.
"""

from collections.abc import Mapping

from trainplan.costmodel.base import unknown_name
from trainplan.costmodel.plugins import Registry
from trainplan.planner.launchers.kubernetes import PYTORCHJOB, TRAINJOB
from trainplan.planner.launchers.mpi import MPI
from trainplan.planner.launchers.script import Launcher, LaunchFile, hostfile
from trainplan.planner.launchers.skypilot import SKYPILOT
from trainplan.planner.launchers.slurm import SLURM
from trainplan.planner.launchers.torchrun import TORCHRUN, TORCHRUN_C10D

__all__ = ["LAUNCHERS", "LaunchFile", "Launcher", "hostfile", "launcher"]

LAUNCHERS: Mapping[str, Launcher] = Registry(
    "launchers",
    {
        "torchrun": TORCHRUN,
        "torchrun-c10d": TORCHRUN_C10D,
        "slurm": SLURM,
        "mpi": MPI,
        "kubernetes": TRAINJOB,
        "pytorchjob": PYTORCHJOB,
        "skypilot": SKYPILOT,
    },
    Launcher,
)
"""Launcher of every way to start a job, by name."""


def launcher(name: str) -> Launcher:
    """One way to start a job.

    Raises:
        CatalogError: No such launcher; the message names the nearest.
    """
    if name not in LAUNCHERS:
        raise unknown_name("launcher", name, LAUNCHERS, f"known: {', '.join(LAUNCHERS)}")
    return LAUNCHERS[name]
