"""The zero-bubble fork of Megatron-LM: unfused attention, weight gradients split off.

Source: sail-sg/zero-bubble-pipeline-parallelism; Qi et al., arXiv:2401.10241, table 1 (activation
bytes of unfused attention) and section 4 (the optimizer step needs no synchronisation).
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.runtimes.footprint import PLAIN
from costmodel.runtimes.megatron_deepspeed import MEGATRON_DEEPSPEED

MEGATRON_ZERO_BUBBLE = replace(
    MEGATRON_DEEPSPEED,
    name="megatron-zero-bubble",
    version="2023-11",
    footprint=PLAIN,
    gradient_bytes=4,
    gradient_message_bytes=4,
    schedules=("1f1b", "interleaved", "zb-1p", "zb-2p"),
    unsynchronised=("zb-1p", "zb-2p"),
)
