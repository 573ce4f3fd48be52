"""Context parallelism: cuts every sequence in `cp` pieces; attention exchanges keys and values."""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import degrees, has_ring, ring_heads
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.shards import heads_to_cut

INDICES = 1 << 31
"""What a signed number of 32 bits counts."""
NARROW = ("0.5",)
"""Versions of Liger whose norms and rotations index in 32 bits.

Source: linkedin/Liger-Kernel @b27b4c5f (July 2025, in 0.6.1), which casts them to 64; a sequence of
555,000 tokens on one GPU ends in an illegal memory access before, one of 500,000 does not
(snowflakedb/ArcticTraining projects/sequence-parallelism/run-h100-sp1-llama-8b.yml).
"""


@rule(
    "cp micro_batch_size",
    "the hidden states of a rank have 2^31 elements or more, which norms and rotations of Liger "
    "before 0.6.1 cannot index: raise cp, shorten the sequence, or use liger=0.6",
    "linkedin/Liger-Kernel @b27b4c5f src/liger_kernel/ops/rms_norm.py and rope.py",
)
def kernel_index(job: Job, table: LayoutTable) -> BoolColumn:
    """Rows of hidden states times their width."""
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    narrow = job.options.liger in NARROW
    return np.asarray(narrow & (tokens * job.model.hidden_size >= INDICES))


@rule(
    "cp",
    "seq_length must be a multiple of 2 cp (each rank takes a chunk from both ends)",
    "Liu et al., Ring Attention, arXiv:2310.01889; Megatron-LM arguments.py:1336",
)
def cp_divides_sequence(job: Job, table: LayoutTable) -> BoolColumn:
    """Causal balance takes two chunks a rank."""
    return np.asarray((table.cp > 1) & (job.training.seq_length % (2 * table.cp) != 0))


@rule(
    "tp cp",
    "cp_comm_type=a2a cuts the heads over tp * cp, which must divide num_attention_heads",
    "Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.2",
)
def heads_exchange_divides_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets whole heads."""
    uneven = job.model.num_attention_heads % (table.tp * table.cp) != 0
    return np.asarray((table.cp > 1) & uneven & (job.options.cp_comm_type == "a2a"))


@rule(
    "cp cp_heads",
    "cp_heads must divide cp, and leave a ring of two or more: lower it, or use cp_comm_type=a2a",
    "Megatron-LM arguments.py:580; Fang and Zhao, USP, arXiv:2405.07719",
)
def cp_heads_divides_cp(job: Job, table: LayoutTable) -> BoolColumn:
    """The ring has what the exchange of heads leaves of the context ranks."""
    ring = table.cp // table.cp_heads
    return np.asarray((table.cp_heads > 1) & ((table.cp % table.cp_heads != 0) | (ring < 2)))


@rule(
    "tp cp_heads",
    "tp * cp_heads must divide num_key_value_heads: lower one",
    "Transformer Engine @d0067d0d `context_parallel.py:4246`",
)
def cp_heads_divides_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets whole heads of keys and values; latent attention has as many as queries."""
    heads = heads_to_cut(job.model)
    return np.asarray((table.cp_heads > 1) & (heads % (table.tp * table.cp_heads) != 0))


@rule(
    "cp_heads",
    "cp_heads > 1 is an exchange inside a ring, which has no windows or sinks: leave it out, with "
    "cp_comm_type=a2a or all_gather, too",
    "Transformer Engine @d0067d0d `context_parallel.py`, attn_forward_func_with_cp",
)
def cp_heads_is_in_a_ring(job: Job, table: LayoutTable) -> BoolColumn:
    """Another exchange of all context ranks has no ring to be inside of."""
    other = job.options.cp_comm_type not in (None, "p2p")
    return np.asarray((table.cp_heads > 1) & (other or not has_ring(job.model)))


CP_HEADS = Axis(
    name="cp_heads",
    off=1,
    search=Tried(ring_heads),
    memory=Memory("neither", (), "pieces and heads of attention are as large together"),
    rules=(cp_heads_divides_cp, cp_heads_divides_heads, cp_heads_is_in_a_ring),
)
CP = Axis(
    name="cp",
    off=1,
    search=Tried(degrees),
    memory=Memory("falls", ("activations",), "each rank has its piece of the sequence"),
    rules=(cp_divides_sequence, heads_exchange_divides_heads, kernel_index),
)
