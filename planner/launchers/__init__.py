"""From a launch configuration to the file that starts it, one way of starting per module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from costmodel.spec.cluster import ClusterSpec
from planner.exporters.config import LaunchConfig
from planner.launchers.script import LaunchFile
from planner.launchers.slurm import slurm
from planner.launchers.torchrun import torchrun

__all__ = ["LAUNCHERS", "LaunchFile", "Launcher"]

Launcher = Callable[[LaunchConfig, ClusterSpec], LaunchFile]

LAUNCHERS: Mapping[str, Launcher] = MappingProxyType({"torchrun": torchrun, "slurm": slurm})
"""Launcher of every way to start a job, by name."""
