"""From someone's launch back to a job and a layout, one runtime per module. Nothing is executed."""

from __future__ import annotations

from functools import cache

from trainplan.costmodel.base.plugins import Registry
from trainplan.planner.readers.accelerate import ACCELERATE
from trainplan.planner.readers.arctic_training import ARCTIC_TRAINING
from trainplan.planner.readers.deepspeed import DEEPSPEED
from trainplan.planner.readers.megatron_bridge import MEGATRON_BRIDGE
from trainplan.planner.readers.megatron_lm import MEGATRON_LM
from trainplan.planner.readers.megatron_zero_bubble import MEGATRON_ZERO_BUBBLE
from trainplan.planner.readers.reading import (
    COMMAND_LINE,
    Asked,
    Field,
    Launch,
    Place,
    Problem,
    Reader,
    Reading,
    Word,
)
from trainplan.planner.readers.torchtitan import TORCHTITAN

__all__ = [
    "COMMAND_LINE",
    "READERS",
    "Asked",
    "Field",
    "Launch",
    "Place",
    "Problem",
    "Reader",
    "Reading",
    "Word",
    "readers",
]

READERS: tuple[Reader, ...] = (
    MEGATRON_ZERO_BUBBLE,
    MEGATRON_LM,
    MEGATRON_BRIDGE,
    TORCHTITAN,
    ARCTIC_TRAINING,
    DEEPSPEED,
    ACCELERATE,
)
"""Reader of every runtime whose launches are read; the first that recognises one reads it."""

PLUGGED: Registry[Reader] = Registry("readers", {}, Reader)
"""Those of plug-ins."""


@cache
def readers() -> tuple[Reader, ...]:
    """Ours, and after them those of plug-ins."""
    return (*READERS, *PLUGGED.values())
