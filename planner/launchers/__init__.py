"""From a launch configuration to the file that starts it, one way of starting per module.

To add one: a module with its `Launcher`, and its line in `LAUNCHERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.planner.launchers.kubernetes import PYTORCHJOB, TRAINJOB
from trainplan.planner.launchers.mpi import MPI
from trainplan.planner.launchers.script import Launcher, LaunchFile, hostfile
from trainplan.planner.launchers.skypilot import SKYPILOT
from trainplan.planner.launchers.slurm import SLURM
from trainplan.planner.launchers.torchrun import TORCHRUN, TORCHRUN_C10D

__all__ = ["LAUNCHERS", "LaunchFile", "Launcher", "hostfile"]

LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {
        "torchrun": TORCHRUN,
        "torchrun-c10d": TORCHRUN_C10D,
        "slurm": SLURM,
        "mpi": MPI,
        "kubernetes": TRAINJOB,
        "pytorchjob": PYTORCHJOB,
        "skypilot": SKYPILOT,
    }
)
"""Launcher of every way to start a job, by name."""
