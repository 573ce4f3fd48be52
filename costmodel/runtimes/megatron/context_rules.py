"""Which attention Megatron Core runs under context parallelism.

Files and lines as in `costmodel.runtimes.megatron.core`.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.attention import attention_of


@rule(
    "tp cp",
    "attention sinks with cp > 1 need key-value heads that are a multiple of tp * cp",
    "Transformer Engine context_parallel.py: sinks run on the all-to-all exchange only",
)
def sinks_under_context_parallelism(job: Job, table: LayoutTable) -> BoolColumn:
    """The all-to-all cuts heads over cp."""
    uneven = job.model.num_key_value_heads % (table.tp * table.cp) != 0
    return np.asarray((table.cp > 1) & uneven & job.model.attention_sinks)


@rule(
    "cp",
    "context parallelism needs a fused attention core (V100 and T4 have none): use cp=1",
    "Transformer Engine dot_product_attention/utils.py: unfused attention is disabled under "
    "context parallelism; "
    "Megatron-LM core/transformer/dot_product_attention.py:57",
)
def cp_needs_fused_attention(job: Job, table: LayoutTable) -> BoolColumn:
    """The exchange of keys and values is written for fused cores."""
    return np.asarray((table.cp > 1) & (attention_of(job, "flash") == "unfused"))


@rule(
    "tp cp",
    "cp_comm_type=a2a cuts keys and values too: tp * cp must divide num_key_value_heads",
    "Transformer Engine context_parallel.py:4246",
)
def heads_exchange_divides_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets whole key-value heads; MLA has as many as queries."""
    uneven = job.model.num_key_value_heads % (table.tp * table.cp) != 0
    stated = job.options.cp_comm_type == "a2a" and job.model.mla is None
    return np.asarray((table.cp > 1) & uneven & stated)


@rule(
    "cp",
    "attention sinks with cp > 1 run on an exchange of heads: leave cp_comm_type=all_gather out",
    "Transformer Engine context_parallel.py:5066",
)
def sinks_exchange_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Cores over gathered keys and values know no sinks."""
    stated = job.options.cp_comm_type == "all_gather"
    return np.asarray((table.cp > 1) & (stated and job.model.attention_sinks))


@rule(
    "cp",
    "windows and attention sinks with cp > 1 run on no ring: leave cp_comm_type=p2p out",
    "Transformer Engine context_parallel.py:5057",
)
def windows_leave_the_ring(job: Job, table: LayoutTable) -> BoolColumn:
    """Heads are exchanged there, or keys and values gathered."""
    other = job.model.attention_sinks or job.model.num_sliding_window_layers > 0
    return np.asarray((table.cp > 1) & (other and job.options.cp_comm_type == "p2p"))


CONTEXT_RULES = (
    sinks_under_context_parallelism,
    cp_needs_fused_attention,
    heads_exchange_divides_groups,
    sinks_exchange_heads,
    windows_leave_the_ring,
)
