"""What a rank computes and holds, where it lies, and how fast it moves: what a step is made of.

All are columns over rows: (row,) or (kind, row), where a number stands for the same in every row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum, StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.copy_streams.transfer_volume import FloatColumn


class Accumulation(StrEnum):
    """Where the gradients of several micro batches are summed."""

    ON_GPU = "on the GPU"
    OFF_IF_SEVERAL = "off the GPU if there are several micro batches"
    """Each leaves the GPU; those of earlier ones come back before, to be added to."""
    OFF = "off the GPU"
    """So even for one micro batch, whose gradients leave and come back."""
    ADDED_OFF = "off the GPU, by the processors"
    """Each leaves the GPU and none comes back; nothing is left to leave for the update."""


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """What a runtime copies, when, and what it waits for."""

    accumulation: Accumulation
    overlaps: bool
    """Copies of weights and gradients run beside the passes."""
    overlaps_checkpoints: bool
    """So do those of kept activations."""
    keeps_last: bool
    """Those of the last layer that keeps any never leave."""
    gradients_with_update: bool
    """Summed gradients leave as part of the update, not beside the last backward passes."""
    pipelines_update: bool
    """Reads, update, copies and writes of further subgroups run beside each other."""
    prefetch: int = 1
    """Layers whose weights are fetched before they are needed."""
    subgroups: int = 1
    """Pieces in which the offloaded share is updated, one after the other, at least."""
    subgroup_params: float = np.inf
    """Parameters of a piece, at most."""
    gradient_bytes: float = 4.0
    """That leave the GPU for each parameter the CPUs update, once a step."""
    weight_bytes: float = 2.0
    """That come back for it, or go to the drive, after the update."""
    state_read_bytes: float = 16.0
    """Read for it if the optimizer lies on the drive: weights, moments, gradients in fp32."""
    state_write_bytes: float = 12.0
    """Written for it: weights and moments; its gradient is written when it leaves the GPU."""


def deepspeed_offload_policy(
    stage: int,
    *,
    overlap_comm: bool | None = None,
    pipelined: bool = False,
    fp32_sums: bool = False,
    subgroup_params: float = 1e9,
) -> OffloadPolicy:
    """DeepSpeed with `zero_optimization.offload_optimizer` and `offload_param`.

    Gradients leave in fp32 behind the last micro batch's passes; stages 1 and 2 with sums in fp32
    keep those on the GPU, else several micro batches are summed off it, as stage 3 always does.
    `pipelined` is `pipeline_read` and `pipeline_write`, `subgroup_params` stage 3's
    `sub_group_size`.
    Source: DeepSpeed 0.19.8, runtime/zero/config.py, overlap_comm_valid (on in stage 3 alone if not
    stated); runtime/zero/stage_1_and_2.py, _use_compact_grad_partition_buffer, step;
    runtime/zero/stage3.py, partition_grads, _offload_grad_partition_at_boundary, step;
    runtime/swap_tensor/pipelined_optimizer_swapper.py; runtime/activation_checkpointing/
    checkpointing.py, _get_cpu_offload_engine (copies of checkpoints on a stream of their own).
    """
    sharded = stage == 3
    on_gpu = fp32_sums and not sharded
    several = Accumulation.ON_GPU if on_gpu else Accumulation.OFF_IF_SEVERAL
    return OffloadPolicy(
        accumulation=Accumulation.OFF if sharded else several,
        overlaps=sharded if overlap_comm is None else overlap_comm,
        overlaps_checkpoints=True,
        keeps_last=True,
        gradients_with_update=False,
        pipelines_update=pipelined,
        subgroup_params=subgroup_params if sharded else np.inf,
    )


def fsdp2_offload_policy() -> OffloadPolicy:
    """FSDP2 of PyTorch with CPUOffloadPolicy: weights, gradients and optimizer on the host.

    Shards are copied in front of their gather, beside the passes; reduced gradients leave behind
    every micro batch and are added on the host. What the copies of all but the first wait for,
    since the add reads them, is not priced.
    Source: PyTorch 2.14, torch/distributed/fsdp/_fully_shard/_fsdp_param.py, all_gather_inputs;
    _fsdp_collectives.py, foreach_reduce; _fsdp_param_group.py, finalize_backward.
    """
    return OffloadPolicy(
        accumulation=Accumulation.ADDED_OFF,
        overlaps=True,
        overlaps_checkpoints=True,
        keeps_last=False,
        gradients_with_update=False,
        pipelines_update=False,
    )


def megatron_offload_policy(*, overlap: bool) -> OffloadPolicy:
    """Megatron-LM with `--optimizer-cpu-offload`: nothing moves before the passes have ended.

    With `--overlap-cpu-optimizer-d2h-h2d` every parameter tensor is an optimizer of its own, whose
    gradients, update and weights run beside those of others (`subgroups` is how many); without,
    they are a chain. The GPU updates its own share beside either. Weights come back in fp32 and are
    cast on the GPU, as copies with `non_blocking` are.
    Source: Megatron-LM d98e8a6, core/optimizer/cpu_offloading/hybrid_optimizer.py, step,
    build_cpu_optimizer_list, param_copy_back_gpu_hook.
    """
    return OffloadPolicy(
        accumulation=Accumulation.ON_GPU,
        overlaps=True,
        overlaps_checkpoints=True,
        keeps_last=False,
        gradients_with_update=True,
        pipelines_update=overlap,
        weight_bytes=4.0,
    )


BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
Column = FloatColumn | float
Columns = TypeVar("Columns", "Quantities", "Speeds", "Placement")
Indices = NDArray[np.intp] | NDArray[np.bool_] | list[int]
KindRows = NDArray[np.float64]
"""Axes (kind of layer, row)."""


class Place(IntEnum):
    """Where something lies while it is not in use."""

    DEVICE = 0
    HOST = 1
    DRIVE = 2


@dataclass(frozen=True, slots=True)
class Quantities:
    """What one rank does in a step if everything lies on the device, and what could lie elsewhere.

    Kinds of layers are in the order in which the rank runs them; embedding and head are kinds of
    their own with one layer (or none) if their weights are fetched like those of layers.
    """

    micro_batches: IntColumn | int
    layers: KindRows
    """Layers of each kind on the rank."""
    forward: KindRows
    """Seconds of the forward pass of one layer and micro batch, with its collectives."""
    backward: KindRows
    """Of the backward pass, with its collectives and what is recomputed."""
    weight_bytes: KindRows
    """Of one layer that this rank fetches for a pass: its share of the weights (2 p / d)."""
    gradient_bytes: KindRows
    """Of one layer that this rank sends for a micro batch: its share, as accumulated (2 p / d)."""
    checkpoint_bytes: KindRows
    """Kept of one layer and micro batch from the forward to the backward pass."""
    updated: FloatColumn
    """Parameters this rank updates, S."""
    update_seconds: FloatColumn
    """Of the update of all of them on the GPU."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.forward.shape[1])

    def take(self, rows: Indices) -> Quantities:
        """Some rows alone."""
        return _taken(self, rows, self.rows)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Bytes a second of one GPU's share while all GPUs of its node do the same.

    That is the least of its own link and of what the node has, divided by its GPUs.
    """

    h2d: Column
    d2h: Column
    drive_read: Column = np.inf
    """Infinite where nothing lies on drives."""
    drive_write: Column = np.inf
    cpu_params: Column = np.inf
    """Parameters a second that the CPUs update for one GPU: those of the node over its GPUs."""
    drive_both: Column = np.inf
    """Each way of the drives while as much goes the other way; infinite: ways are apart."""

    def take(self, rows: Indices, of: int) -> Speeds:
        """Some of so many rows alone."""
        return _taken(self, rows, of)


@dataclass(frozen=True, slots=True)
class Placement:
    """What lies where, and what a runtime copies beside what."""

    optimizer: Column = 0.0
    """Share of the optimizer's states that lies off the GPU and is updated by the CPUs."""
    optimizer_place: IntColumn | Place = Place.HOST
    """Where that share lies."""
    parameters: IntColumn | Place = Place.DEVICE
    """Where the weights of layers lie between passes."""
    checkpoints: Column = 0.0
    """Share of the kept activations that leaves the GPU."""
    checkpoints_place: IntColumn | Place = Place.HOST
    stride: IntColumn | int = 0
    """Every `stride`-th subgroup of the offloaded optimizer is updated on the GPU; 0: none is."""
    delayed: BoolColumn | bool = False
    """The update runs beside the passes of the next step: changes the training."""

    @property
    def moves(self) -> BoolColumn:
        """Rows in which anything leaves the GPU."""
        return np.asarray(
            (np.asarray(self.optimizer) > 0)
            | (np.asarray(self.checkpoints) > 0)
            | (np.asarray(self.parameters) != Place.DEVICE)
        )

    @property
    def updates_off(self) -> BoolColumn:
        """Rows in which the CPUs update something."""
        return np.asarray(np.asarray(self.optimizer) > 0)

    def take(self, rows: Indices, of: int) -> Placement:
        """Some of so many rows alone."""
        return _taken(self, rows, of)


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A step of some rows with something off the GPU."""

    quantities: Quantities
    speeds: Speeds
    placement: Placement
    policy: OffloadPolicy

    @property
    def parts(self) -> tuple[Quantities, Speeds, Placement, OffloadPolicy]:
        """Its fields."""
        return self.quantities, self.speeds, self.placement, self.policy

    def take(self, rows: Indices) -> Offloaded:
        """Some rows alone."""
        of = self.quantities.rows
        some = self.quantities.take(rows), self.speeds.take(rows, of), self.placement.take(rows, of)
        return Offloaded(*some, self.policy)


def _taken(columns: Columns, rows: Indices, of: int) -> Columns:
    """Every column at some of its rows; what is one number for all stays."""
    taken = {}
    for field in fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, np.ndarray) and value.ndim and value.shape[-1] == of:
            taken[field.name] = value[..., rows]
    return replace(columns, **taken)
