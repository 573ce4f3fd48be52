"""Layouts that torchtitan does not run, as rules.

Files are those of pytorch/torchtitan at the commit of `planner.runtimes.torchtitan`.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Schedule
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, rule

LOSS_CHUNKS = 8
"""Chunks of the loss. Source: torchtitan components/loss.py, ChunkedLossWrapper.Config."""
FILLED: tuple[Schedule, ...] = ("1f1b", "gpipe")
"""Schedules that torch builds for as many micro batches as stages at least.

Source: torch `schedules.py`, PipelineScheduleSingle.
"""


@rule(
    "tp",
    "torchtitan needs num_key_value_heads to be a multiple of tp: lower tp",
    "pytorch/torchtitan models/common/decoder.py, update_from_config",
)
def tp_divides_key_value_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Key-value heads are cut, never repeated; latent attention has as many as queries."""
    model = job.model
    heads = model.num_attention_heads if model.mla else model.num_key_value_heads
    return np.asarray(heads % table.tp != 0)


@rule(
    "pp cp dp dp_replicate zero_stage",
    "torchtitan shards gradients after every micro batch unless pipelined, and context ranks "
    "always share the weights: use zero_stage 2 or 3 with pp = 1 (0 with cp = 1 alone)",
    "pytorch/torchtitan distributed/fsdp.py; trainer.py enters no no_sync",
)
def shards_every_gradient(job: Job, table: LayoutTable) -> BoolColumn:
    """ZeRO-1 exists under a pipeline alone, and none without a dimension that shards."""
    several = table.dp * table.cp > 1
    alone = (table.zero_stage == 1) & (table.pp == 1)
    shared = (table.zero_stage == 0) & ((table.cp > 1) | (table.dp_replicate > 1))
    nothing = (table.zero_stage > 0) & (table.cp * table.dp == table.dp_replicate)
    return np.asarray(several & (alone | shared | nothing))


@rule(
    "cp",
    "gpt_oss does not run with cp > 1 in torchtitan: use cp=1",
    "pytorch/torchtitan models/gpt_oss/parallelize.py, parallelize_gptoss",
)
def sinks_stay_on_a_rank(job: Job, table: LayoutTable) -> BoolColumn:
    """Attention sinks occur in its gpt_oss alone."""
    return np.asarray((table.cp > 1) & job.model.attention_sinks)


@rule(
    "tp ep etp",
    "torchtitan cuts experts over tp where ep = 1 and not at all elsewhere: set etp to tp or to 1",
    "pytorch/torchtitan models/common/moe_sharding.py, expert_param_placement_dense and _sparse",
)
def experts_are_cut_one_way(job: Job, table: LayoutTable) -> BoolColumn:
    """There is no degree of its own for tensor parallelism of experts."""
    return np.asarray(table.etp != np.where(table.ep == 1, table.tp, 1)) & bool(job.model.moe)


@rule(
    "tp cp dp dp_replicate zero_stage ep",
    "torchtitan takes ep from the ranks that share one copy of the weights: ep must divide "
    "tp * cp * dp / dp_replicate, or tp * cp with zero_stage 0",
    "pytorch/torchtitan distributed/parallel_dims.py, _validate",
)
def ep_divides_sharding_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """Replicas of everything stay outside expert parallelism."""
    shard = np.where(table.zero_stage == 0, 1, table.dp // table.dp_replicate)
    return np.asarray(table.tp * table.cp * shard % table.ep != 0)


@rule(
    "schedule pp dp micro_batch_size",
    "torch builds 1f1b and gpipe for as many micro batches as stages at least: lower pp, dp or "
    "micro_batch_size",
    "torch distributed/pipelining/schedules.py, PipelineScheduleSingle",
)
def pipeline_is_filled(job: Job, table: LayoutTable) -> BoolColumn:
    """Fewer micro batches than stages are refused when the schedule is built."""
    fewer = num_microbatches(job, table) < table.pp
    filled = np.isin(table.schedule, [SCHEDULE_NAMES.index(name) for name in FILLED])
    return np.asarray(filled & (table.pp > 1) & fewer)


@rule(
    "pp",
    "torchtitan runs no pipeline where embedding and head are one weight: set pp to 1",
    "pytorch/torchtitan models/common/decoder.py, update_from_config",
)
def ends_share_no_weight(job: Job, table: LayoutTable) -> BoolColumn:
    """A tied weight would lie on two ranks."""
    return np.asarray((table.pp > 1) & job.model.tie_word_embeddings)


@rule(
    "pp cp",
    "torchtitan runs multi-token prediction without pipeline and context parallelism: set pp and "
    "cp to 1",
    "pytorch/torchtitan models/deepseek_v3/mtp.py, update_from_config",
)
def predictions_need_whole_sequences(job: Job, table: LayoutTable) -> BoolColumn:
    """Its modules read embedding and head."""
    return np.asarray((table.pp * table.cp > 1) & (job.model.num_nextn_predict_layers > 0))


@rule(
    "offload_optimizer offload_parameters zero_stage pp cp dp dp_replicate",
    "torchtitan keeps weights, gradients and the whole optimizer on the host or nothing: use "
    "offload.parameters=cpu with offload.optimizer=1, zero_stage=3 and pp=1, or neither",
    "pytorch/torchtitan config/configs.py, enable_cpu_offload; distributed/fsdp.py, "
    "CPUOffloadPolicy; that it runs with stages, or keeps weights gathered, is not priced",
    values=(1.0,),
)
def policy_offloads_all(job: Job, table: LayoutTable) -> BoolColumn:
    """One key moves everything."""
    weights, states = table.offload_parameters > 0, table.offload_optimizer
    alone = np.where(weights, states < 1, states > 0)
    sharded = (table.zero_stage == 3) & (table.cp * table.dp > table.dp_replicate)
    return np.asarray(alone | (weights & (~sharded | (table.pp > 1))))


@rule(
    "tiled_loss micro_batch_size cp",
    "torchtitan takes the loss in 8 equal chunks, and of multi-token prediction at once: make the "
    "tokens of a rank a multiple of 8, or leave tiled_loss out",
    "pytorch/torchtitan components/loss.py, ChunkedLossWrapper; models/deepseek_v3/MTP.md",
)
def chunks_of_loss_are_equal(job: Job, table: LayoutTable) -> BoolColumn:
    """A chunk is written at a multiple of its own length; predictions give a list of logits."""
    tokens = table.micro_batch_size * job.training.seq_length // table.cp
    uneven = (tokens % LOSS_CHUNKS != 0) | (job.model.num_nextn_predict_layers > 0)
    return np.asarray((table.tiled_loss == 1) & uneven)


RULES = (
    chunks_of_loss_are_equal,
    tp_divides_key_value_heads,
    shards_every_gradient,
    sinks_stay_on_a_rank,
    experts_are_cut_one_way,
    ep_divides_sharding_ranks,
    pipeline_is_filled,
    ends_share_no_weight,
    predictions_need_whole_sequences,
    policy_offloads_all,
)
