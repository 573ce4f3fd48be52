"""The runtimes whose launches are written, and those whose launches are read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trainplan.costmodel.plugins import Registry
from trainplan.planner.runtimes import (
    accelerate,
    arctic_training,
    deepspeed,
    fsdp2,
    megatron_bridge,
    megatron_lm,
    megatron_zero_bubble,
    torchtitan,
)
from trainplan.planner.runtimes.exporter import Exporter
from trainplan.planner.runtimes.reading import Reader

WRITTEN = (
    megatron_lm,
    megatron_bridge,
    megatron_zero_bubble,
    torchtitan,
    deepspeed,
    arctic_training,
    accelerate,
    fsdp2,
)
EXPORTERS: Mapping[str, Exporter] = Registry(
    "exporters",
    {one.EXPORTER.runtime: one.EXPORTER for one in WRITTEN},
    Exporter,
    called="runtime",
)
"""Exporter of every runtime a plan can be written for, by runtime id."""
READERS: tuple[Reader, ...] = (
    megatron_zero_bubble.READER,
    megatron_lm.READER,
    megatron_bridge.READER,
    torchtitan.READER,
    arctic_training.READER,
    deepspeed.READER,
    accelerate.READER,
)
"""Reader of every runtime whose launches are read; the first that recognises one reads it."""

PLUGGED: Registry[Reader] = Registry("readers", {}, Reader)
"""Those of plug-ins."""


@cache
def readers() -> tuple[Reader, ...]:
    """Ours, and after them those of plug-ins."""
    return (*READERS, *PLUGGED.values())
