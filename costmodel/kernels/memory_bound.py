"""Seconds of kernels without reuse: those that the bandwidth of device memory bounds."""

from collections.abc import Iterable

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.machine import Machine

ADAM_SHARD_BYTES = 42
"""Bytes moved per parameter a rank updates: norm (4) and clipping (8) of its fp32 gradient; Adam
reads and writes fp32 weight and both moments (24), reads the gradient (4), writes bf16 (2).

Source: derived; Megatron Core `distrib_optimizer.py` clips and steps on the shard alone.
"""
ADAM_STEP_BYTES = 28
"""Of these, what a fused Adam step alone moves: fp32 weight, gradient and moments read, all but the
gradient written.

Source: fp32 weight, gradient and two moments are read, 4 x 4 bytes, and all but the gradient are
written, 3 x 4 bytes: 28.
"""


def optimizer_bytes_per_second(machine: Machine) -> float:
    """Memory bandwidth of the optimizer: measured, else as `streaming_bytes_per_second`."""
    return machine.optimizer_bytes_per_second or streaming_bytes_per_second(machine)


def streaming_bytes_per_second(machine: Machine) -> float:
    """Memory bandwidth that kernels without reuse reach. Source: `Constants`."""
    return machine.constants.elementwise_efficiency * machine.memory_bytes_per_second


def elementwise_seconds(machine: Machine, moved_bytes: FloatColumn) -> FloatColumn:
    """Memory-bound kernels that move `moved_bytes`.

    Source: roofline at `elementwise_efficiency` of memory bandwidth.
    """
    return moved_bytes / streaming_bytes_per_second(machine)


def sum_columns(columns: Iterable[FloatColumn]) -> FloatColumn:
    """Sum of columns; 0 for none.

    Source: the empty sum is zero, and a zero without a shape takes the shape of any column that is
    added to it.
    """
    total: FloatColumn = np.zeros(())
    for column in columns:
        total = total + column
    return total
