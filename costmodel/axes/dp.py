"""Data parallelism: every replica takes its share of the global batch."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Held, Memory, Tried
from trainplan.costmodel.axes.grid import degrees, micro_batch_sizes
from trainplan.costmodel.layouts import BoolColumn, LayoutTable, rule
from trainplan.costmodel.spec import Job


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


DP = Axis(
    name="dp",
    off=1,
    search=Tried(degrees),
    memory=Memory("falls", ("weights", "optimizer"), "smaller shards, by the ZeRO stage"),
    rules=(dp_divides_batch, micro_batch_divides_batch, replicas_divide_dp),
)
DP_REPLICATE = Axis(
    name="dp_replicate",
    short="rep",
    off=1,
    search=Held(
        says="the search does not try dp_replicate > 1",
        why="no run in examples/accuracy shards in groups, so its traffic is not checked",
    ),
    memory=Memory("rises", ("weights", "optimizer"), "states are sharded over fewer ranks"),
)
ZERO_STAGE = Axis(
    name="zero_stage",
    short="zero",
    off=0,
    search=Tried(lambda job, traits: traits.sharding.zero_stages),
    memory=Memory("falls", ("weights", "optimizer"), "more of the states is sharded over dp"),
)
MICRO_BATCH_SIZE = Axis(
    name="micro_batch_size",
    short="mbs",
    off=1,
    search=Tried(micro_batch_sizes),
    memory=Memory(
        "rises", ("transients",), "more tokens at once, though fewer micro batches a step"
    ),
)
