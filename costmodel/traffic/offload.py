"""Offload of the optimizer in series: nothing of it overlaps the passes."""

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.copy_streams import serial_added_seconds
from trainplan.costmodel.kernels import ADAM_SHARD_BYTES, optimizer_bytes_per_second
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine

CPU_ADAM_PARAMS_PER_SECOND = 4.5e9
"""Parameters one node's CPUs update in a second.

Source: Ren et al., ZeRO-Offload, arXiv:2101.06840, table 4 (1 B parameters in 0.22 s).
"""
OFFLOAD_WIRE_BYTES = 2 * BYTES_FP32
"""Bytes between GPU and host of a parameter that the CPUs update: gradient out, weight back.

Source: Megatron-LM core/optimizer/cpu_offloading/hybrid_optimizer.py at 0d41ecd8,
param_copy_back_gpu_hook: the fp32 weight is copied with `non_blocking`, which torch casts on the
GPU; tests/replay/offloaded_adam_h200.json: both ways take as long.
"""


def offload_seconds(machine: Machine, table: LayoutTable, updated: FloatColumn) -> FloatColumn:
    """Seconds the offloaded share of the optimizer adds: gradients out, CPU Adam, weights back.

    Source: Ren et al., ZeRO-Offload, arXiv:2101.06840, without delayed update.
    """
    return np.asarray(rank_offload_seconds(machine, table, updated).max(axis=0))


def rank_offload_seconds(machine: Machine, table: LayoutTable, updated: FloatColumn) -> FloatColumn:
    """As `offload_seconds`, of each rank class. Source: as there."""
    moved = updated * table.offload_optimizer
    wire = OFFLOAD_WIRE_BYTES / machine.host_bytes_per_second
    update = machine.gpus_per_node / (
        machine.cpu_adam_params_per_second or CPU_ADAM_PARAMS_PER_SECOND
    )
    saved = ADAM_SHARD_BYTES / optimizer_bytes_per_second(machine)
    return serial_added_seconds(moved, wire, update, saved)
