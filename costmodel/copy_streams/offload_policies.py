"""What runtimes that offload copy, when, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


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
    prefetch: int = 1,
    subgroups: int = 1,
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
        prefetch=prefetch,
        subgroups=subgroups,
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


def megatron_offload_policy(*, overlap: bool, subgroups: int = 1) -> OffloadPolicy:
    """Megatron-LM with `--optimizer-cpu-offload`: nothing moves before the passes have ended.

    With `--overlap-cpu-optimizer-d2h-h2d` every parameter tensor is an optimizer of its own, whose
    gradients, update and weights run beside those of others (`subgroups` tensors); without, they
    are a chain. The GPU updates its own share beside either. Weights come back in fp32 and are
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
        subgroups=subgroups,
        weight_bytes=4.0,
    )
