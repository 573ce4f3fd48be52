"""Data parallelism: every replica takes its share of the global batch."""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import (
    degrees,
    micro_batch_sizes,
    replicas,
    replicas_under,
    second_copies,
    second_copies_under,
    shard_groups_tried,
    shard_groups_under,
    shared_optimizers,
    shared_optimizers_under,
    zero_stages_under,
)
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.shard_groups import stated_sizes


@rule(
    "dp",
    "global_batch_size must be a multiple of dp: change the batch or use more tp, cp or pp",
    "derived: every replica runs the same number of sequences",
)
def dp_divides_batch(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole sequences on every replica."""
    return np.asarray(job.training.global_batch_size % table.dp != 0)


@rule(
    "dp micro_batch_size",
    "global_batch_size must be a multiple of dp * micro_batch_size: lower micro_batch_size",
    "derived; Megatron-LM num_microbatches_calculator.py",
)
def micro_batch_divides_batch(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole micro batches on every replica."""
    return np.asarray(job.training.global_batch_size % (table.dp * table.micro_batch_size) != 0)


@rule(
    "dp dp_replicate",
    "dp_replicate must divide dp",
    "Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3.2.2 (hybrid sharding)",
)
def replicas_divide_dp(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal sharding groups."""
    return np.asarray(table.dp % table.dp_replicate != 0)


@rule(
    "tp cp dp ep etp dp_replicate",
    "dp_replicate must divide the expert data parallelism tp * cp * dp / (ep * etp)",
    "Megatron-LM parallel_state.py:1447",
)
def replicas_divide_expert_dp(job: Job, table: LayoutTable) -> BoolColumn:
    """Experts are replicated in whole groups too."""
    expert_dp = table.tp * table.cp * table.dp // np.maximum(1, table.ep * table.etp)
    return np.asarray(expert_dp % table.dp_replicate != 0)


@rule(
    "zero_stage dp_replicate",
    "dp_replicate > 1 means nothing with zero_stage=0: nothing is sharded",
    "derived; Megatron-LM parallel_state.py, num_distributed_optimizer_instances",
)
def replicas_need_sharding(job: Job, table: LayoutTable) -> BoolColumn:
    """Hybrid sharding needs sharding."""
    return np.asarray((table.zero_stage == 0) & (table.dp_replicate > 1))


@rule(
    "replicas_share_optimizer zero_stage dp_replicate dp cp",
    "replicas_share_optimizer needs zero_stage=3 and 1 < dp_replicate < dp * cp: use zero_stage 1, "
    "or leave it out",
    "NVIDIA/Megatron-LM @d98e8a64 core/distributed/fsdp/src/megatron_fsdp/"
    "param_and_grad_buffer.py:2504",
)
def replicas_share_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """ZeRO-1 among the copies of what ZeRO-3 has sharded."""
    shards = (table.zero_stage == 3) & (table.dp_replicate > 1)
    shards = shards & (table.dp_replicate < table.dp * table.cp)
    return np.asarray((table.replicas_share_optimizer == 1) & ~shards)


@rule(
    "hpz zero_stage dp cp dp_replicate",
    "hpz > 1 is a second copy of what zero_stage 3 shards: use zero_stage 3 and a divisor of dp * "
    "cp / dp_replicate below it, or leave hpz at 1",
    "Wang et al., ZeRO++, arXiv:2306.10013, section 3.2",
)
def second_copy_is_shared_by_fewer(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole groups of fewer ranks than share the first copy."""
    shards = table.dp * table.cp // table.dp_replicate
    whole = (table.zero_stage == 3) & (table.hpz < shards) & (shards % table.hpz == 0)
    return np.asarray((table.hpz > 1) & ~whole)


@rule(
    "shard tp cp dp ep etp gtp",
    "shard needs groups that divide dp * cp and, by copies, the expert data parallelism, and gtp=1",
    "Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5: every part is on one rank of a group",
)
def shards_divide_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """Whole groups of every state, of dense parameters and of experts."""
    ranks, sizes = table.dp * table.cp, stated_sizes(table)
    odd = (ranks % sizes != 0).any(axis=0) | (table.gtp > 1)
    if job.model.moe:
        experts = table.tp * table.cp * table.dp // np.maximum(1, table.ep * table.etp)
        uneven = experts % np.maximum(1, ranks // sizes) != 0
        odd = odd | ((sizes > 1) & uneven).any(axis=0)
    return np.asarray((table.shard > 0) & odd)


@rule(
    "shard zero_stage dp_replicate replicas_share_optimizer hpz cp dp",
    "shard is for what zero_stage and dp_replicate cannot do: leave these, and hpz, out, or shard",
    "derived: one layout has one name",
)
def shard_has_one_name(job: Job, table: LayoutTable) -> BoolColumn:
    """ZeRO stage as it follows, no other copies, and no groups that stage and copies have."""
    sizes = stated_sizes(table)
    others = (table.zero_stage != (sizes > 1).sum(axis=0)) | (table.dp_replicate > 1)
    others = others | (table.replicas_share_optimizer == 1) | (table.hpz > 1)
    alike = ((sizes == sizes[2]) | (sizes == 1)).all(axis=0)
    shared = (sizes[0] == sizes[1]) & (sizes[2] == table.dp * table.cp)
    return np.asarray((table.shard > 0) & (others | alike | shared))


DP = Axis(
    name="dp",
    off=1,
    search=Tried(degrees),
    memory=Memory("falls", ("weights", "optimizer"), "smaller shards, by the ZeRO stage"),
    rules=(dp_divides_batch, micro_batch_divides_batch),
)
DP_REPLICATE = Axis(
    name="dp_replicate",
    short="rep",
    off=1,
    search=Tried(replicas, replicas_under),
    memory=Memory("rises", ("weights", "optimizer"), "states are sharded over fewer ranks"),
    rules=(replicas_divide_dp, replicas_divide_expert_dp, replicas_need_sharding),
)
REPLICAS_SHARE_OPTIMIZER = Axis(
    name="replicas_share_optimizer",
    short="hfsdp",
    off=False,
    search=Tried(shared_optimizers, shared_optimizers_under),
    memory=Memory("falls", ("optimizer",), "each copy of a shard updates a part of it"),
    rules=(replicas_share_shards,),
)
HPZ = Axis(
    name="hpz",
    off=1,
    search=Tried(second_copies, second_copies_under),
    memory=Memory("neither", ("weights",), "a second copy of them, smaller over more ranks"),
    rules=(second_copy_is_shared_by_fewer,),
)
SHARD = Axis(
    name="shard",
    off=None,
    search=Tried(shard_groups_tried, shard_groups_under),
    memory=Memory("neither", (), "each state over ranks of its own: more of one, fewer of another"),
    rules=(shards_divide_ranks, shard_has_one_name),
)
ZERO_STAGE = Axis(
    name="zero_stage",
    short="zero",
    off=0,
    search=Tried(lambda job, traits: traits.sharding.zero_stages, zero_stages_under),
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
