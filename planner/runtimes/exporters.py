"""The runtimes whose launches are written."""

from __future__ import annotations

from collections.abc import Mapping

from trainplan.costmodel.plugins import Registry
from trainplan.planner.runtimes.accelerate.write import ACCELERATE
from trainplan.planner.runtimes.arctic_training import EXPORTER as ARCTIC_TRAINING
from trainplan.planner.runtimes.config import Exporter
from trainplan.planner.runtimes.deepspeed.write import DEEPSPEED
from trainplan.planner.runtimes.fsdp2.write import FSDP2
from trainplan.planner.runtimes.megatron_bridge.write import MEGATRON_BRIDGE
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM
from trainplan.planner.runtimes.megatron_zero_bubble.write import MEGATRON_ZERO_BUBBLE
from trainplan.planner.runtimes.torchtitan.write import TORCHTITAN

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
