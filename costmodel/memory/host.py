"""Bytes of a node outside its GPUs: host memory and drives that offloaded state takes.

Every rank of a node keeps its own; those of the fullest pipeline rank count for all of them.
Of processes, ranks and workers that load data, the least is counted, and nothing of what else runs
on a node or waits to be written: it needs at least as much as is counted here.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from trainplan.costmodel.base import BYTES_FP32, GIB
from trainplan.costmodel.blocks import RowBlocks
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn, Rows
from trainplan.costmodel.layouts import ON_DRIVE, ON_HOST, moves_states
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory.matrices import of_blocks
from trainplan.costmodel.memory.optimizer_state import rank_optimizer_bytes
from trainplan.costmodel.memory.states import RankParams, rank_params, updated_params
from trainplan.costmodel.outer import state_bytes_per_param
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups
from trainplan.costmodel.swap_buffers import (
    SUBGROUP_PARAMS,
    WEIGHT_BUFFERS,
    optimizer_buffer_params,
    weight_buffer_params,
)

GRADIENT_BYTES = BYTES_FP32
"""Of a gradient that the processors read, with the states they update.

Source: deepspeedai/DeepSpeed 0.19.8 `runtime/zero/stage3.py`,
estimate_zero3_model_states_mem_needs: 16 bytes a parameter more than its weight; Megatron-LM
`core/optimizer/cpu_offloading/hybrid_optimizer.py`, copies of gradients in fp32.
"""


PROCESS_BYTES = 0.7 * GIB
"""Resident memory of a rank, or of a worker that loads data, at least.

Source: measured, of an import and not of a training: 0.70 GiB in /proc/self/statm of a process that
had imported torch 2.14.1 without CUDA and Megatron Core 0.16.1 and done nothing. A CUDA context,
NCCL and batches that wait add to it; a worker that forks shares a part.
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
    saving: Rows
    """Copies of weights in host memory while a checkpoint is written, and processes."""
    loading: Rows
    """Host memory while weights are loaded, before there are states."""
    host_limit: float
    """Host memory of a node; infinite where not known."""
    drive_limit: float

    def host_used(self, fraction: FloatColumn | None = None) -> FloatColumn:
        """Least host memory of a node whose ranks keep anything there; of others 0.

        The larger of what is there when a checkpoint is written and when weights are loaded.
        Source: derived; states off the GPU take as many bytes as on it, so a share of the optimizer
        takes that share of `host_optimizer`.
        """
        share = self.fraction if fraction is None else fraction
        kept = self.host + share * self.host_optimizer
        return np.where(kept > 0, np.maximum(kept + self.saving, self.loading), 0.0)

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
        return OffDevice(none, none, none, none, none, none, none, **limits)

    def of_node(each: ClassRows) -> Rows:
        return np.asarray(machine.gpus_per_node * (each + none).max(axis=0))

    updated = updated_params(table, held)
    whole = candidates.with_table(table.replaced(offload_optimizer=none))
    states = rank_optimizer_bytes(whole, ranks, held.with_gradients) + GRADIENT_BYTES * updated
    locked_states = states + page_locked_states(candidates, ranks, updated)
    buffers = BYTES_FP32 * optimizer_buffer_params(updated)
    on_drive, placed = table.offload_tier > 0, table.offload_parameters
    storage = candidates.job.training.storage_bytes
    size = weight_buffer_params(candidates.job.model, shard_groups(candidates)[0].weights)
    fetched = WEIGHT_BUFFERS * size * storage
    locked = weights + page_locked_weights(candidates, ranks, held, weights)
    on_host = np.where(placed == ON_HOST, locked, np.where(placed == ON_DRIVE, fetched, 0.0))
    workers = candidates.traits.offloading.workers
    processes = np.full((1, 1), PROCESS_BYTES * (1 + workers))
    kept_deep = candidates.traits.offloading.checkpoints_tier == "nvme"
    if candidates.job.outer:
        on_host = on_host + state_bytes_per_param(candidates.job.outer)[1] * updated
    return OffDevice(
        host=of_node(on_host + checkpoints * (not kept_deep) + moved_activations(blocks, ranks)),
        host_optimizer=of_node(np.where(on_drive, np.minimum(buffers, states), locked_states)),
        drive=of_node(np.where(placed == ON_DRIVE, weights, 0.0) + checkpoints * kept_deep),
        drive_optimizer=of_node(np.where(on_drive, states, 0.0)),
        fraction=table.offload_optimizer,
        saving=saved_bytes(candidates, held, of_node) + of_node(processes),
        loading=loaded_bytes(candidates, held, of_node),
        **limits,
    )


def page_locked(size: FloatColumn) -> FloatColumn:
    """Bytes of host memory that torch takes for page-locked ones: the next power of two.

    Source: PyTorch `ATen/core/CachingHostAllocator.h`, allocate: c10::llvm::PowerOf2Ceil(size).
    """
    return np.where(size > 0, 2.0 ** np.ceil(np.log2(np.maximum(size, 1.0))), 0.0)


def _tensor_by_tensor(candidates: Candidates, ranks: Ranks) -> RankParams | None:
    """Parameters of each rank class, those of every tensor rounded up as `page_locked` does.

    A shard is rounded as the whole tensor is, which is exact of a power of two of them. None where
    adapters are trained, whose few bytes are left as they are.
    """
    job, table = candidates.job, candidates.table
    if job.model.trained is not None:
        return None
    return rank_params(ranks, of_blocks(job, table, lambda one: page_locked(one.elements)))


def page_locked_states(candidates: Candidates, ranks: Ranks, updated: ClassRows) -> ClassRows:
    """What page-locked masters and gradients on the host take beyond their 4 bytes a parameter.

    Source: `Offloading.pins`; Megatron-LM `core/optimizer/cpu_offloading/hybrid_optimizer.py`,
    pin_cpu_params and pin_cpu_grads (each tensor); DeepSpeed 0.19.8 `runtime/zero/stage3.py`,
    initialize_optimizer_states (gradients by subgroup) and grad_partitions_flat_buffer (a second
    copy, as wide as gradients are accumulated); `runtime/zero/stage_1_and_2.py`,
    single_partition_of_fp32_groups and its grad, each one tensor.
    """
    traits, table = candidates.traits, candidates.table
    if traits.offloading.pins == "tensors":
        rounded = _tensor_by_tensor(candidates, ranks)
        more = 0.0 if rounded is None else updated_params(table, rounded) - updated
        return np.asarray((traits.footprint.master_bytes + GRADIENT_BYTES) * more * np.ones(1))
    if traits.offloading.pins != "flat":
        return np.zeros((1, 1))
    kept, whole = GRADIENT_BYTES * updated, np.floor(updated / SUBGROUP_PARAMS)
    rest = updated - whole * SUBGROUP_PARAMS
    size = page_locked(np.asarray(GRADIENT_BYTES * float(SUBGROUP_PARAMS)))
    by_subgroup = whole * size + page_locked(GRADIENT_BYTES * rest) - kept
    by_subgroup = by_subgroup + page_locked(traits.gradients.accumulated_bytes * updated)
    return np.where(table.zero_stage == 3, by_subgroup, 2 * (page_locked(kept) - kept))


def page_locked_weights(
    candidates: Candidates, ranks: Ranks, held: RankParams, weights: ClassRows
) -> ClassRows:
    """What offloaded weights take beyond their bytes: one page-locked buffer, and those before it.

    They are loaded tensor by tensor, into page-locked memory that torch keeps when they have moved.
    Source: DeepSpeed 0.19.8 `runtime/zero/partition_parameters.py`, pin_memory of a partition, and
    `runtime/zero/stage3.py`, _create_param_groups_fp16_flat_cpu_memory; PyTorch as `page_locked`,
    which returns no block to the system.
    """
    if candidates.traits.offloading.pins != "flat":
        return np.zeros((1, 1))
    rounded = _tensor_by_tensor(candidates, ranks)
    count = held.shared + held.expert
    before = 0.0 if rounded is None else weights * (rounded.shared + rounded.expert) / count
    return np.asarray(page_locked(weights) - weights + before)


def saved_bytes(
    candidates: Candidates, held: RankParams, of_node: Callable[[ClassRows], Rows]
) -> Rows:
    """Copies of weights on a node while a checkpoint is written.

    Source: `Offloading.saves`; DeepSpeed 0.19.8 `runtime/engine.py`,
    _zero3_consolidated_16bit_state_dict (all weights on one rank); Megatron-LM
    `core/dist_checkpointing/strategies/filesystem_async.py`, preload_tensors (every weight once,
    over all ranks).
    """
    saves, storage = candidates.traits.offloading.saves, candidates.job.training.storage_bytes
    if saves == "shards":
        return of_node(storage * updated_params(candidates.table, held))
    whole = storage * (held.shared + held.expert).max(axis=0)
    return np.asarray(whole * (saves == "whole") * np.ones(len(candidates.table)))


def loaded_bytes(
    candidates: Candidates, held: RankParams, of_node: Callable[[ClassRows], Rows]
) -> Rows:
    """Weights on a node while they are loaded: below ZeRO-3 every rank reads the whole model.

    Source: huggingface/transformers `modeling_utils.py`, from_pretrained, which loads on the host
    unless ZeRO-3 cuts what is loaded (`integrations/deepspeed.py`).
    """
    whole = (candidates.table.zero_stage < 3) & (candidates.traits.offloading.saves == "whole")
    return whole * of_node(candidates.job.training.storage_bytes * (held.shared + held.expert))


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
    moves = moves | (candidates.job.outer is not None)
    return np.asarray(moves | (checked & (candidates.traits.offloading.optimizer_step is not None)))


def moved_activations(blocks: RowBlocks, ranks: Ranks) -> ClassRows:
    """Activations of modules that wait on the host, of all micro batches in flight.

    Source: `costmodel.memory.in_transit.in_transit_bytes`, of which these are all that is freed.
    """
    total = ranks.mtp_held * blocks.mtp.copies.freed_bytes
    for held, layer in zip(ranks.whole_held, blocks.layers, strict=True):
        total = total + held * layer.copies.freed_bytes
    return np.asarray(total)
