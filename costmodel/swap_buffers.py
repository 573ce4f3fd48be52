"""Buffers in host memory through which DeepSpeed moves what lies on drives.

Source: deepspeedai/DeepSpeed at edaa7221, `runtime/zero/config.py` and
`runtime/zero/offload_config.py` (defaults), and below `runtime/swap_tensor`
`optimizer_utils.py`, SwapBufferManager: every buffer of the optimizer holds a subgroup in fp32.
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import FloatColumn

SUBGROUP_PARAMS = 1_000_000_000
"""Parameters that are read from a drive and updated at once.

Source: DeepSpeed 0.19.8 `runtime/zero/config.py`, default of sub_group_size.
"""
STATES = 4
"""Buffers of a subgroup: its weights, gradients and two moments.

Source: DeepSpeed 0.19.8 `runtime/zero/offload_config.py`, buffer_count.
"""
SUBGROUPS_AT_ONCE = 3
"""One is read, one updated and one written.

Source: DeepSpeed 0.19.8 `runtime/swap_tensor/pipelined_optimizer_swapper.py`: the next is read
while the last one's buffers wait for their writes, and it stops where buffers are short.
"""
WEIGHT_BUFFERS, WEIGHT_BUFFER_PARAMS = 5, 100_000_000
"""Source: DeepSpeed 0.19.8 `runtime/zero/offload_config.py`, defaults of buffer_count, buffer_size.
"""


def optimizer_buffers(updated: FloatColumn) -> FloatColumn:
    """Buffers of a rank that updates so many parameters from a drive, reads and writes beside.

    Source: derived; STATES of every subgroup that is there at once, of those there are.
    """
    subgroups = np.ceil(np.asarray(updated) / SUBGROUP_PARAMS)
    return STATES * np.clip(subgroups, 1, SUBGROUPS_AT_ONCE)


def optimizer_buffer_params(updated: FloatColumn) -> FloatColumn:
    """Parameters that all buffers of the optimizer hold together. Source: the module's."""
    return optimizer_buffers(updated) * np.minimum(updated, SUBGROUP_PARAMS)


def largest_matrix_params(model: ModelSpec) -> int:
    """Parameters of the largest weight: the table of tokens, or all experts of a layer in one.

    Source: huggingface/transformers `models/mixtral/modeling_mixtral.py`, MixtralExperts: gate and
    up of all experts are one parameter.
    """
    width = model.embedding_size or model.hidden_size
    sizes = [model.vocab_size * width, model.hidden_size * model.intermediate_size]
    if model.moe is not None:
        experts = 2 * model.moe.num_experts * model.moe.moe_intermediate_size
        sizes.append(experts * model.hidden_size)
    return max(sizes)


def weight_buffer_params(model: ModelSpec, shards: FloatColumn) -> FloatColumn:
    """Parameters of one buffer for weights: the default, or a rank's share of the largest one.

    Source: DeepSpeed 0.19.8 `runtime/swap_tensor/partitioned_param_swapper.py`, get_buffer, which
    stops where a share is larger than a buffer; shares are rounded up.
    """
    share = np.ceil(largest_matrix_params(model) / np.asarray(shards))
    return np.maximum(WEIGHT_BUFFER_PARAMS, share)
