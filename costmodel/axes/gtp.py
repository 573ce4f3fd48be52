"""Generalised tensor parallelism: matrices cut beyond `tp`, and gathered for every use.

The ranks that share a matrix have data of their own, so they are a part of `dp`: ZeRO-3 over
neighbours, one matrix at a time, beside a distributed optimizer over all others.
"""

import numpy as np

from trainplan.costmodel.axes.axis import Axis, Memory, Tried
from trainplan.costmodel.axes.values import expert_weight_shards, weight_shards
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule

SOURCE = "NVIDIA/Megatron-LM @d98e8a64 docs/api-guide/core/generalized_tensor_parallel.md"


@rule("dp gtp", "gtp must divide dp: its ranks have data of their own", f"{SOURCE}, section 3.1")
def gtp_divides_dp(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal groups of replicas."""
    return np.asarray(table.dp % table.gtp != 0)


@rule("gtp zero_stage", "gtp > 1 cuts weights itself: use zero_stage 0 or 1", f"{SOURCE}, 3.2")
def gtp_shards_weights_once(job: Job, table: LayoutTable) -> BoolColumn:
    """Gradients and optimizer follow the weights; a distributed optimizer shards the rest."""
    return np.asarray((table.gtp > 1) & (table.zero_stage >= 2))


@rule(
    "gtp dp_replicate",
    "gtp > 1 shards over all other replicas: leave dp_replicate at 1",
    "NVIDIA/Megatron-LM @d98e8a64 core/parallel_state.py:805",
)
def gtp_has_one_instance(job: Job, table: LayoutTable) -> BoolColumn:
    """One instance of the distributed optimizer."""
    return np.asarray((table.gtp > 1) & (table.dp_replicate > 1))


@rule("egtp", "egtp > 1 needs a mixture-of-experts model", SOURCE)
def egtp_needs_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """A dense model has no experts to cut."""
    return np.asarray((table.egtp > 1) & (job.model.moe is None))


@rule(
    "tp cp dp ep etp egtp",
    "egtp must divide the expert data parallelism tp * cp * dp / (ep * etp)",
    f"{SOURCE}, section 3.1",
)
def egtp_divides_expert_dp(job: Job, table: LayoutTable) -> BoolColumn:
    """Equal groups of ranks with the same experts."""
    ranks = table.tp * table.cp * table.dp // np.maximum(1, table.ep * table.etp)
    return np.asarray(ranks % table.egtp != 0)


@rule("egtp zero_stage", "egtp > 1 cuts experts itself: use zero_stage 0 or 1", f"{SOURCE}, 3.2")
def egtp_shards_experts_once(job: Job, table: LayoutTable) -> BoolColumn:
    """As `gtp_shards_weights_once`."""
    return np.asarray((table.egtp > 1) & (table.zero_stage >= 2))


@rule(
    "egtp dp_replicate",
    "egtp > 1 shards over all other replicas: leave dp_replicate at 1",
    "NVIDIA/Megatron-LM @d98e8a64 core/parallel_state.py:805",
)
def egtp_has_one_instance(job: Job, table: LayoutTable) -> BoolColumn:
    """As `gtp_has_one_instance`."""
    return np.asarray((table.egtp > 1) & (table.dp_replicate > 1))


GTP = Axis(
    name="gtp",
    off=1,
    search=Tried(weight_shards),
    memory=Memory("falls", ("weights", "gradients"), "a rank has a part of every matrix"),
    rules=(gtp_divides_dp, gtp_shards_weights_once, gtp_has_one_instance),
)
EGTP = Axis(
    name="egtp",
    off=1,
    search=Tried(expert_weight_shards),
    memory=Memory("falls", ("weights", "gradients"), "a rank has a part of every expert"),
    rules=(
        egtp_needs_experts,
        egtp_divides_expert_dp,
        egtp_shards_experts_once,
        egtp_has_one_instance,
    ),
)
