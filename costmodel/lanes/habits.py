"""What runtimes that offload copy, when, and what they wait for."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.placed import Accumulation, Habits


def deepspeed_habits(
    stage: int,
    *,
    overlap_comm: bool | None = None,
    pipelined: bool = False,
    fp32_sums: bool = False,
    prefetch: int = 1,
    subgroups: int = 1,
    subgroup_params: float = 1e9,
) -> Habits:
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
    return Habits(
        accumulation=Accumulation.OFF if sharded else several,
        overlaps=sharded if overlap_comm is None else overlap_comm,
        checkpoints_beside=True,
        keeps_last=True,
        gradients_with_update=False,
        pipelines_update=pipelined,
        prefetch=prefetch,
        subgroups=subgroups,
        subgroup_params=subgroup_params if sharded else np.inf,
    )


def megatron_habits(*, overlap: bool, subgroups: int = 1) -> Habits:
    """Megatron-LM with `--optimizer-cpu-offload`: nothing moves before the passes have ended.

    With `--overlap-cpu-optimizer-d2h-h2d` every parameter tensor is an optimizer of its own, whose
    gradients, update and weights run beside those of others (`subgroups` tensors); without, they
    are a chain. The GPU updates its own share beside either. Weights come back in fp32 and are
    cast on the GPU, as copies with `non_blocking` are.
    Source: Megatron-LM d98e8a6, core/optimizer/cpu_offloading/hybrid_optimizer.py, step,
    build_cpu_optimizer_list, param_copy_back_gpu_hook.
    """
    return Habits(
        accumulation=Accumulation.ON_GPU,
        overlaps=True,
        checkpoints_beside=True,
        keeps_last=False,
        gradients_with_update=True,
        pipelines_update=overlap,
        subgroups=subgroups,
        weight_bytes=4.0,
    )
