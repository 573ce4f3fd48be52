"""Where the dispatchers of experts run, and on which groups of ranks.

Files and lines as in `costmodel.runtimes.megatron.core`; DeepEP is deepseek-ai/DeepEP, at dd758caf
and, for HybridEP, its branch `hybrid-ep`; MB is NVIDIA-NeMo/Megatron-Bridge @067f987d.
"""

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, is_torn, rule
from trainplan.costmodel.runtimes.megatron.capacity import CAPACITY_RULES, pads
from trainplan.costmodel.runtimes.traits.needs import DEEPEP

DEEPEP_PEERS = 8
"""Ranks among which DeepEP sends over NVLink. Source: DeepEP `csrc/kernels/configs.cuh`,
NUM_MAX_NVL_PEERS, which Megatron Core's `Buffer` uses."""
DEEPEP_BETWEEN_NODES = frozenset(("hopper", "blackwell"))
"""Source: DeepEP `setup.py`, DISABLE_SM90_FEATURES, which Ampere needs, asserts no NVSHMEM."""


def domain_gpus(job: Job) -> int:
    """GPUs of the job in its smallest scale-up domain. Source: as `Machine.domain_gpus`."""
    return min(one.domain_gpus(catalog.device(one)) for one in job.cluster.groups)


def joins_racks(job: Job) -> bool:
    """Has a scale-up domain, as it is built, more GPUs than DeepEP knows of?"""
    groups = job.cluster.groups
    return min(one.built_domain_gpus(catalog.device(one)) for one in groups) > DEEPEP_PEERS


def links_experts(job: Job) -> str | None:
    """What of a job keeps HybridEP from it; null: nothing."""
    return None if job.model.moe else "the model has no experts"


def links_deepep(job: Job) -> str | None:
    """What of a job keeps DeepEP from it; null: nothing.

    Source: MB `training/flex_dispatcher_backend.py`, not on GB200 and GB300.
    """
    if pads(job):
        return "DeepEP pads nothing to a capacity"
    if joins_racks(job):
        return "DeepEP knows no NVLink domain of more than 8 GPUs"
    return links_experts(job)


def dispatches_between_nodes(job: Job) -> bool:
    """Does DeepEP join the nodes of a job?"""
    gpus = (catalog.device(one).architecture for one in job.cluster.groups)
    started = DEEPEP.missing(job) is None and not joins_racks(job)
    return started and DEEPEP_BETWEEN_NODES.issuperset(gpus)


@rule(
    "ep etp",
    "moe_dispatcher=deepep beyond one NVLink domain needs domains of 8 GPUs, and whole ones: make "
    "ep * etp a multiple of 8 there, or a divisor of the GPUs of one domain; on Ampere it joins no "
    "nodes",
    "DeepEP csrc/deep_ep.cpp:153, num_ranks % NUM_MAX_NVL_PEERS; num_nvl_ranks of a node; setup.py",
)
def deepep_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Beyond one group of 8, ranks of equal place in theirs exchange by RDMA."""
    ranks, domain = table.ep * table.etp, min(domain_gpus(job), DEEPEP_PEERS)
    enabled = job.options.moe_dispatcher == "deepep" and job.model.moe is not None
    whole = domain == DEEPEP_PEERS and (joins_racks(job) or dispatches_between_nodes(job))
    beyond = (ranks > domain) & (not whole)
    return np.asarray((beyond | is_torn(ranks, domain, job.cluster.num_gpus)) & enabled)


@rule(
    "ep",
    "Megatron-Bridge refuses DeepEP on NVLink domains of racks (GB200, GB300): use "
    "moe_dispatcher=hybridep, or leave the option out",
    "Megatron-Bridge training/flex_dispatcher_backend.py, validate_flex_dispatcher_backend",
)
def deepep_leaves_racks_out(job: Job, table: LayoutTable) -> BoolColumn:
    """Its list of devices has B200 and B300, whose nodes are domains."""
    enabled = job.options.moe_dispatcher == "deepep" and job.model.moe is not None
    return np.full(len(table), enabled and joins_racks(job))


@rule(
    "ep etp",
    "moe_dispatcher=hybridep beyond one NVLink domain needs whole ones, and none of more than 8 "
    "GPUs: make ep * etp a divisor of the GPUs that one domain gives to the job, or leave the "
    "option out",
    "DeepEP hybrid-ep, deep_ep/hybrid_ep_buffer.py, group_size % ranks per domain; MB "
    "scripts/performance/utils/utils.py, apply_target_topology_environment (at most 72 ranks)",
)
def hybridep_fills_domains(job: Job, table: LayoutTable) -> BoolColumn:
    """On a rack of NVLink the group stays inside; on nodes it may go over RDMA."""
    ranks, domain = table.ep * table.etp, domain_gpus(job)
    torn = is_torn(ranks, domain, job.cluster.num_gpus)
    leaves = ((ranks > domain) & joins_racks(job)) | torn
    enabled = job.options.moe_dispatcher == "hybridep" and job.model.moe is not None
    return np.asarray(leaves & enabled)


@rule(
    "ep",
    "cuda_graph=full_iteration with experts needs a dispatch that reads no sizes on the host: add "
    "moe_dispatcher=hybridep, or choose partial; biased experts in 16 bits have none",
    "docs/user-guide/features/cuda_graph.md, MoE Model Training; Megatron-LM "
    "core/transformer/transformer_config.py:1868; "
    "Megatron-LM core/transformer/moe/experts.py, _apply_bias",
)
def graph_of_step_needs_hybridep(job: Job, table: LayoutTable) -> BoolColumn:
    """Shapes of a captured dispatch are fixed: `moe_expert_rank_capacity_factor`."""
    return np.full(len(table), bool(keeps_the_host(job)))


def keeps_the_host(job: Job) -> str | None:
    """Why a step of a job with a graph of all of it cannot be captured; null: it can."""
    options, moe = job.options, job.model.moe
    if moe is None or options.cuda_graph != "full_iteration":
        return None
    if options.moe_dispatcher != "hybridep":
        return "only HybridEP reads no sizes on the host"
    biased = moe.expert_bias and not job.training.casts
    return "biases of experts in 16 bits need rows per expert on the host" if biased else None


@rule(
    "ep",
    "moe_dispatcher=allgather excludes overlap_moe_a2a, overlap_shared_experts, moe_router_padding "
    "and moe_pad_to_capacity: leave one of them out",
    "Megatron-LM transformer_config.py:1820, 2655 and 3016; core/transformer/moe/"
    "token_dispatcher.py:233, which knows no buffers of fixed size",
)
def gathered_tokens_stand_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """Nothing runs beside the gather, and it takes the rows that there are."""
    options = job.options
    others = (
        options.overlap_moe_a2a,
        options.overlap_shared_experts,
        options.moe_router_padding,
        options.moe_pad_to_capacity,
    )
    enabled = options.moe_dispatcher == "allgather" and job.model.moe is not None
    return np.full(len(table), enabled and True in others)


@rule(
    "ep",
    "moe_dispatcher=ncclep limits and pads no rows: leave moe_capacity_factor out, or use hybridep",
    "Megatron-LM core/transformer/moe/token_dispatcher.py:1554",
)
def ncclep_drops_nothing(job: Job, table: LayoutTable) -> BoolColumn:
    """Its buffers are those of the rows that come."""
    limits = job.options.moe_capacity_factor is not None and job.model.moe is not None
    return np.full(len(table), limits and job.options.moe_dispatcher == "ncclep")


@rule(
    "ep",
    "moe_dispatch_dtype=mxfp8 is what grouped products in mxfp8 read: choose precision=mxfp8, or "
    "leave it out",
    "Megatron-LM transformer_config.py:1776; core/transformer/moe/experts.py:541",
)
def narrow_tokens_are_multiplied_so(job: Job, table: LayoutTable) -> BoolColumn:
    """No kernel takes the tokens back to 16 bits."""
    narrow = job.options.moe_dispatch_dtype == "mxfp8" and job.model.moe is not None
    return np.full(len(table), narrow and job.training.precision != "mxfp8")


DISPATCHER_RULES = (
    deepep_groups,
    gathered_tokens_stand_alone,
    ncclep_drops_nothing,
    narrow_tokens_are_multiplied_so,
    hybridep_fills_domains,
    graph_of_step_needs_hybridep,
    *CAPACITY_RULES,
)
