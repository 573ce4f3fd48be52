"""Copies that optimizers make of gradients and moments when no activation is alive.

The caching allocator gives none of the pieces that activations leave free to a block larger than
each of them, so a copy of DeepSpeed's takes memory of its own, which it keeps: nvidia-smi shows it.
Where there is none left the allocator first gives free pieces back, so no run fails by them.
"""

import numpy as np

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows
from trainplan.costmodel.memory.matrices import largest_in_layers
from trainplan.costmodel.memory.states import (
    BlockParams,
    RankParams,
    updated_params,
    whole_sum_bytes,
)
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.shard_groups import shard_groups

NORM_BYTES = 8
"""Of one gradient of a shard in fp64, of which its norm is taken.

Source: deepspeedai/DeepSpeed v0.6.2 to v0.19.5 `runtime/zero/stage_1_and_2.py`,
get_grad_norm_direct.
"""
SHARD_BYTES = 6
"""Of a shard's gradients laid end to end, as they are and then in fp32.

Source: deepspeedai/DeepSpeed v0.6.2 `runtime/zero/stage_1_and_2.py`, step, single_grad_partition.
"""
WHOLE_BYTES = 8
"""Of all gradients where nothing is sharded: in fp32 one by one, and those laid end to end.

Source: DeepSpeed v0.6.2 `runtime/fp16/fused_optimizer.py`, step.
"""
REDUCED_ELEMENTS = 500_000_000
"""Gradients laid end to end before they are summed over the replicas.

Source: DeepSpeed v0.6.2 `runtime/engine.py`, MEMORY_OPT_ALLREDUCE_SIZE, allreduce_bucket; default
of reduce_bucket_size.
"""


def update_copy_bytes(candidates: Candidates, held: RankParams) -> ClassRows:
    """The root of every second moment, all at once, where torch works on lists of tensors.

    Source: PyTorch 2.14 `torch/optim/adamw.py` and `adam.py`, _multi_tensor_adam:
    torch._foreach_sqrt(device_exp_avg_sqs); all else there works in place.
    """
    job, width = candidates.job, candidates.traits.footprint.moment_bytes
    if job.options.fused_optimizer is not False or job.training.optimizer.name != "adamw":
        return np.zeros((1, 1))
    return np.asarray(width * updated_params(candidates.table, held))


def step_copy_bytes(
    candidates: Candidates, ranks: Ranks, params: BlockParams, held: RankParams
) -> ClassRows:
    """Memory that copies of gradients take more than everything else, of each rank class.

    In 16 bits: the gradient of the token table, whole before it is added, and the larger of what
    norm and step copy. Of 16-bit gradients with fp32 sums one in fp32 at a time, before it is
    added (v0.6.2 `runtime/bf16_optimizer.py`, update_hp_grads). In fp32 what is reduced at once.
    ZeRO-3 has one buffer for all (`Footprint.reduce_bucket_elements`), and offloaded states are
    updated on the host.
    Source: as the module states, and NORM_BYTES, SHARD_BYTES, WHOLE_BYTES and REDUCED_ELEMENTS.
    """
    job, gradients, table = candidates.job, candidates.traits.gradients, candidates.table
    if not gradients.copied_for_step:
        return np.zeros((1, 1))
    storage = job.training.storage_bytes
    inner, _ = largest_in_layers(job, table, lambda matrix: matrix.elements)
    table_params = ranks.embedding * params.embedding
    largest = np.maximum(inner, np.maximum(table_params, ranks.head * params.head))
    own = held.with_gradients.shared
    if storage == BYTES_FP32:
        copies = storage * np.minimum(own, REDUCED_ELEMENTS)
    else:
        shard = own / shard_groups(candidates)[0].optimizer
        sharded = np.maximum(NORM_BYTES * np.minimum(largest, shard), SHARD_BYTES * shard)
        copies = np.where(table.zero_stage == 0, WHOLE_BYTES * own, sharded)
        copies = copies + storage * table_params
        widened = whole_sum_bytes(job, candidates.traits, table) > storage
        copies = np.where(widened, BYTES_FP32 * largest, copies)
    elsewhere = (table.zero_stage == 3) | (table.offload_optimizer > 0)
    return np.where(elsewhere, 0.0, copies)
