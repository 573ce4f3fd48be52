"""From a launch configuration to the file that starts it, one way of starting per module."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from trainplan.costmodel.spec import ClusterSpec
from trainplan.planner.exporters.config import LaunchConfig
from trainplan.planner.launchers.script import LaunchFile, hostfile
from trainplan.planner.launchers.slurm import slurm
from trainplan.planner.launchers.torchrun import torchrun

__all__ = ["LAUNCHERS", "LaunchFile", "Launcher", "hostfile"]


class Launcher(Protocol):
    """One way to start a job."""

    def __call__(
        self, config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()
    ) -> LaunchFile:
        """The file that starts it; `order` names the nodes in rank order, where one is chosen."""
        ...


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType({"torchrun": torchrun, "slurm": slurm})
"""Launcher of every way to start a job, by name."""
