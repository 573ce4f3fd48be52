"""Context parallelism: cuts every sequence in `cp` pieces; attention exchanges keys and values."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.grid import degrees
from trainplan.costmodel.axes.indices import kernel_index
from trainplan.costmodel.layouts import BoolColumn, LayoutTable, rule
from trainplan.costmodel.spec import Job


@rule(
    "cp_divides_sequence",
    "cp",
    "seq_length must be a multiple of 2 cp (each rank takes a chunk from both ends)",
    "Liu et al., Ring Attention, arXiv:2310.01889; Megatron-LM arguments.py:1336",
)
def cp_divides_sequence(job: Job, table: LayoutTable) -> BoolColumn:
    """Causal balance takes two chunks a rank."""
    return np.asarray((table.cp > 1) & (job.training.seq_length % (2 * table.cp) != 0))


@rule(
    "heads_exchange_divides_heads",
    "tp cp",
    "cp_comm_type=a2a cuts the heads over tp * cp, which must divide num_attention_heads",
    "Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.2",
)
def heads_exchange_divides_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets whole heads."""
    uneven = job.model.num_attention_heads % (table.tp * table.cp) != 0
    return np.asarray((table.cp > 1) & uneven & (job.options.cp_comm_type == "a2a"))


CP = Axis(
    name="cp",
    off=1,
    search=Tried(degrees),
    memory=Memory("falls", ("activations",), "each rank has its piece of the sequence"),
    rules=(cp_divides_sequence, heads_exchange_divides_heads, kernel_index),
)
