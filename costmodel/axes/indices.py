"""Elements of one tensor that a kernel can count: those that index in 32 bits stop at 2^31."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule

INDICES = 1 << 31
"""What a signed number of 32 bits counts."""
NARROW = ("0.5",)
"""Versions of Liger whose norms and rotations index in 32 bits.

Source: linkedin/Liger-Kernel @b27b4c5f (July 2025, in 0.6.1), which casts them to 64; a sequence of
555,000 tokens on one GPU ends in an illegal memory access before, one of 500,000 does not
(snowflakedb/ArcticTraining projects/sequence-parallelism/run-h100-sp1-llama-8b.yml).
"""


@rule(
    "kernel_index",
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
