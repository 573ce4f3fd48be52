"""How Megatron Core cuts mixers that carry a state: whole heads and groups for every rank."""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.mixers import projected_columns

FP8_BLOCK = 16
"""Source: as `low_precision_states_fill_blocks`."""


@rule(
    "tp",
    "tp must divide the heads and the groups of Mamba layers: lower tp",
    "Megatron-LM core/ssm/mamba_mixer.py, nheads and ngroups must be divisible by tp_size",
)
def tp_divides_state_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets at least one head and one group."""
    ssm = job.model.ssm
    if ssm is None:
        return np.zeros(len(table), dtype=bool)
    return np.asarray((ssm.num_heads % table.tp != 0) | (ssm.num_groups % table.tp != 0))


@rule(
    "tp cp",
    "tp * cp must divide the heads of Mamba layers, and cp their groups on a tensor rank or be a "
    "multiple of those: lower cp",
    "Megatron-LM core/ssm/mamba_context_parallel.py:106-132",
)
def cp_divides_state_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Context ranks exchange sequence for heads; groups are repeated where there are too few."""
    ssm = job.model.ssm
    if ssm is None:
        return np.zeros(len(table), dtype=bool)
    groups = np.maximum(1, ssm.num_groups // table.tp)
    repeated = np.where(groups < table.cp, table.cp % groups, groups % table.cp)
    return np.asarray((ssm.num_heads % (table.tp * table.cp) != 0) | (repeated != 0))


@rule(
    "tp cp",
    "tp * cp must divide num_key_heads and num_value_heads of linear attention: lower tp or cp",
    "Megatron-LM transformer_config.py:1502",
)
def linear_heads_are_divided(job: Job, table: LayoutTable) -> BoolColumn:
    """Tensor ranks and context ranks both cut heads."""
    linear = job.model.linear_attention
    if linear is None:
        return np.zeros(len(table), dtype=bool)
    ranks = table.tp * table.cp
    return np.asarray((linear.num_key_heads % ranks != 0) | (linear.num_value_heads % ranks != 0))


@rule(
    "tp",
    "low precision needs mixers whose projected input has a multiple of 16 columns: use bf16",
    "Megatron-LM core/ssm/mamba_mixer.py and gated_delta_net/common.py, 'For FP8, the innermost "
    "dimension'",
)
def low_precision_states_fill_blocks(job: Job, table: LayoutTable) -> BoolColumn:
    """The input projection of Mamba and of linear attention is one product."""
    widths = [projected_columns(kind) for kind in job.model.kinds]
    odd = any(width % FP8_BLOCK for width in widths)
    return np.full(len(table), job.training.casts and odd)


STATE_RULES = (
    tp_divides_state_heads,
    cp_divides_state_heads,
    linear_heads_are_divided,
    low_precision_states_fill_blocks,
)
