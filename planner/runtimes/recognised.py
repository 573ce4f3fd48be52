"""The runtimes whose launches are read."""

from __future__ import annotations

from functools import cache

from trainplan.costmodel.plugins import Registry
from trainplan.planner.runtimes.accelerate.read import ACCELERATE
from trainplan.planner.runtimes.arctic_training import READER as ARCTIC_TRAINING
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED
from trainplan.planner.runtimes.megatron_bridge.read import MEGATRON_BRIDGE
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_zero_bubble.read import MEGATRON_ZERO_BUBBLE
from trainplan.planner.runtimes.reading import Reader
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN

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
