"""The runtimes whose launches are written, and those whose launches are read."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from trainplan.costmodel.plugins import Registry, imported
from trainplan.planner.runtimes import (
    accelerate,
    arctic_training,
    deepspeed,
    fsdp2,
    megatron_bridge,
    megatron_lm,
    megatron_zero_bubble,
    torchtitan,
    transformers,
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
    transformers,
)
EXPORTERS: Mapping[str, Exporter] = Registry(
    "exporters", {one.EXPORTER.runtime: one.EXPORTER for one in WRITTEN}, Exporter, called="runtime"
)
"""Exporter of every runtime a plan can be written for, by runtime id."""
READ = (
    "megatron_zero_bubble.read:MEGATRON_ZERO_BUBBLE",
    "megatron_lm.read:MEGATRON_LM",
    "megatron_bridge.read:MEGATRON_BRIDGE",
    "torchtitan.read:TORCHTITAN",
    "fsdp2.read:FSDP2",
    "arctic_training:READER",
    "transformers.read:TRANSFORMERS",
    "hf_trainers.read:HF_TRAINERS",
    "deepspeed.read:DEEPSPEED",
    "accelerate.read:ACCELERATE",
    "foreign:FOREIGN",
)
"""Where `READERS` are: a search, which reads no launch, does not wait for them."""
READERS: tuple[Reader, ...]
"""Reader of every runtime whose launches are read; the first that recognises one reads it."""

PLUGGED: Registry[Reader] = Registry("readers", {}, Reader)
"""Those of plug-ins."""


@cache
def _ours() -> tuple[Reader, ...]:
    return tuple(imported(f"{__package__}.{one}", Reader) for one in READ)


@cache
def readers() -> tuple[Reader, ...]:
    """Ours, and after them those of plug-ins."""
    return (*_ours(), *PLUGGED.values())


if not TYPE_CHECKING:  # a checker knows the name from its annotation

    def __getattr__(name: str) -> object:
        """`READERS`, imported when they are first used (PEP 562)."""
        if name != "READERS":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _ours()
