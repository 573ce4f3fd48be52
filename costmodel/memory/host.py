"""Bytes of a node outside its GPUs: host memory and drives that offloaded state takes.

Every rank of a node keeps its own; those of the fullest pipeline rank count for all of them.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks import RowBlocks
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn, Rows
from trainplan.costmodel.layouts import ON_DRIVE, ON_HOST, moves_states
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory.optimizer_state import rank_optimizer_bytes
from trainplan.costmodel.memory.states import RankParams, shard_ranks, updated_params
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.swap_buffers import (
    WEIGHT_BUFFERS,
    optimizer_buffer_params,
    weight_buffer_params,
)

GRADIENT_BYTES = BYTES_FP32
"""Of a gradient that the processors read, beside the states they update.

Source: deepspeedai/DeepSpeed 0.19.8 `runtime/zero/stage3.py`,
estimate_zero3_model_states_mem_needs: 16 bytes a parameter beside its weight; Megatron-LM
`core/optimizer/cpu_offloading/hybrid_optimizer.py`, copies of gradients in fp32.
"""


@dataclass(frozen=True, slots=True)
class OffDevice:
    """Bytes of one node off its GPUs; of the optimizer those if all of it is there."""

    host: Rows
    """Without the optimizer's."""
    host_optimizer: Rows
    drive: Rows
    drive_optimizer: Rows
    fraction: Rows
    """Of the optimizer that is there."""
    host_limit: float
    """Host memory of a node; infinite where not known."""
    drive_limit: float

    def host_used(self, fraction: FloatColumn | None = None) -> FloatColumn:
        """Host memory of a node.

        Source: derived; states off the GPU take as many bytes as on it, so a share of the optimizer
        takes that share of `host_optimizer`.
        """
        share = self.fraction if fraction is None else fraction
        return np.asarray(self.host + share * self.host_optimizer)

    def drive_used(self, fraction: FloatColumn | None = None) -> FloatColumn:
        """Space on the drives of a node. Source: as `host_used`."""
        share = self.fraction if fraction is None else fraction
        return np.asarray(self.drive + share * self.drive_optimizer)

    def fits(self, fraction: FloatColumn | None = None) -> BoolColumn:
        """Does a node have that much? Source: as `host_used`."""
        host = self.host_used(fraction) <= self.host_limit
        return np.asarray(host & (self.drive_used(fraction) <= self.drive_limit))

    def fullest(self, other: Self) -> Self:
        """The larger bytes and the smaller limits of two."""
        limits = ("host_limit", "drive_limit")
        columns = [f.name for f in fields(self) if f.name not in limits]
        return type(self)(
            **{name: np.maximum(getattr(self, name), getattr(other, name)) for name in columns},
            host_limit=min(self.host_limit, other.host_limit),
            drive_limit=min(self.drive_limit, other.drive_limit),
        )


def off_device(
    candidates: Candidates,
    blocks: RowBlocks,
    *,
    ranks: Ranks,
    held: RankParams,
    weights: ClassRows,
    checkpoints: ClassRows,
) -> OffDevice:
    """What layouts keep off the GPUs of a node.

    `weights` are the bytes a rank keeps of its weights wherever they lie, `checkpoints` those of
    its kept activations that are off the device.
    """
    machine, table = candidates.machine, candidates.table
    none = np.zeros(len(table))
    limits = _limits(machine)
    if not _may_leave(candidates, known=bool(np.isfinite(limits["host_limit"]))).any():
        return OffDevice(none, none, none, none, none, **limits)

    def of_node(each: ClassRows) -> Rows:
        return np.asarray(machine.gpus_per_node * (each + none).max(axis=0))

    updated = updated_params(table, held)
    whole = candidates.with_table(table.replaced(offload_optimizer=none))
    states = rank_optimizer_bytes(whole, ranks, held.with_gradients) + GRADIENT_BYTES * updated
    buffers = BYTES_FP32 * optimizer_buffer_params(updated)
    on_drive, placed = table.offload_tier > 0, table.offload_parameters
    storage = candidates.job.training.storage_bytes
    size = weight_buffer_params(candidates.job.model, shard_ranks(table))
    fetched = WEIGHT_BUFFERS * size * storage
    on_host = np.where(placed == ON_HOST, weights, np.where(placed == ON_DRIVE, fetched, 0.0))
    kept_deep = candidates.traits.offloading.checkpoints_tier == "nvme"
    return OffDevice(
        host=of_node(on_host + checkpoints * (not kept_deep) + moved_activations(blocks, ranks)),
        host_optimizer=of_node(np.where(on_drive, np.minimum(buffers, states), states)),
        drive=of_node(np.where(placed == ON_DRIVE, weights, 0.0) + checkpoints * kept_deep),
        drive_optimizer=of_node(np.where(on_drive, states, 0.0)),
        fraction=table.offload_optimizer,
        **limits,
    )


def _limits(machine: Machine) -> dict[str, float]:
    drives = machine.drives
    return {
        "host_limit": machine.host_memory_bytes or np.inf,
        "drive_limit": drives.space_bytes if drives else 0.0,
    }


def _may_leave(candidates: Candidates, *, known: bool) -> BoolColumn:
    """Rows that keep anything off the GPU, or whose optimizer may yet leave for a known host."""
    table = candidates.table
    moves = moves_states(table) | (table.offload_modules > 0)
    checked = known or bool(table.offload_tier.any())
    return np.asarray(moves | (checked & (candidates.traits.offloading.optimizer_step is not None)))


def moved_activations(blocks: RowBlocks, ranks: Ranks) -> ClassRows:
    """Activations of modules that wait on the host, of all micro batches in flight.

    Source: `costmodel.memory.in_transit.in_transit_bytes`, of which these are all that is freed.
    """
    total = ranks.mtp_held * blocks.mtp.copies.freed_bytes
    for held, layer in zip(ranks.whole_held, blocks.layers, strict=True):
        total = total + held * layer.copies.freed_bytes
    return np.asarray(total)
