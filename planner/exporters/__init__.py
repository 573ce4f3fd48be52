"""From a chosen layout to the command line of a training runtime, one runtime per module."""

from __future__ import annotations

from collections.abc import Mapping

from trainplan.costmodel.base.plugins import Registry
from trainplan.planner.exporters.accelerate import ACCELERATE
from trainplan.planner.exporters.arctic_training import ARCTIC_TRAINING
from trainplan.planner.exporters.config import (
    Argument,
    ConfigFile,
    EntryPoint,
    EnvironmentVariable,
    Exporter,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
)
from trainplan.planner.exporters.deepspeed import DEEPSPEED
from trainplan.planner.exporters.fsdp2 import FSDP2
from trainplan.planner.exporters.megatron_bridge import MEGATRON_BRIDGE
from trainplan.planner.exporters.megatron_lm import MEGATRON_LM
from trainplan.planner.exporters.megatron_zero_bubble import MEGATRON_ZERO_BUBBLE
from trainplan.planner.exporters.torchtitan import TORCHTITAN

__all__ = [
    "EXPORTERS",
    "Argument",
    "ConfigFile",
    "EntryPoint",
    "EnvironmentVariable",
    "Exporter",
    "LaunchConfig",
    "ModuleEntry",
    "RequiredVariable",
    "UserVariable",
]

EXPORTERS: Mapping[str, Exporter] = Registry(
    "exporters",
    {
        exporter.runtime: exporter
        for exporter in (
            MEGATRON_LM,
            MEGATRON_BRIDGE,
            MEGATRON_ZERO_BUBBLE,
            TORCHTITAN,
            DEEPSPEED,
            ARCTIC_TRAINING,
            ACCELERATE,
            FSDP2,
        )
    },
    Exporter,
    called="runtime",
)
"""Exporter of every runtime a plan can be written for, by runtime id."""
