"""Data parallelism: every replica takes its share of the global batch."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts.rules import Rule, rule
from trainplan.costmodel.layouts.table import BoolColumn, LayoutTable
from trainplan.costmodel.spec.job import Job


@rule(
    "dp_divides_batch",
    "dp",
    "global_batch_size must be a multiple of dp: change the batch or use more tp, cp or pp",
    "derived: every replica runs the same number of sequences",
)
def dp_divides_batch(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole sequences on every replica."""
    return np.asarray(job.training.global_batch_size % table.dp != 0)


@rule(
    "micro_batch_divides_batch",
    "dp micro_batch_size",
    "global_batch_size must be a multiple of dp * micro_batch_size: lower micro_batch_size",
    "derived; Megatron-LM num_microbatches_calculator.py",
)
def micro_batch_divides_batch(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole micro batches on every replica."""
    return np.asarray(job.training.global_batch_size % (table.dp * table.micro_batch_size) != 0)


@rule(
    "replicas_divide_dp",
    "dp dp_replicate",
    "dp_replicate must divide dp",
    "Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3.2.2 (hybrid sharding)",
)
def replicas_divide_dp(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal sharding groups."""
    return np.asarray(table.dp % table.dp_replicate != 0)


RULES: tuple[Rule, ...] = (dp_divides_batch, micro_batch_divides_batch, replicas_divide_dp)
