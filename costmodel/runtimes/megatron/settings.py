"""What a search may set of a Megatron-LM run.

Files and lines as in `costmodel.runtimes.megatron.core`. Why a value is never slower: a graph takes
host time away; DeepEP and HybridEP send a token to a rank once, not once for each expert, where no
host posts every message; a share of overlapped traffic is exposed; fewer bytes are reduced, read
and written. Products may slow down where a pass waits less, by its power limit: by less than the
wait, since their seconds grow with a power of the duty below one
(`costmodel.blocks.parts.clock_factor`).
"""

from functools import lru_cache
from math import isqrt

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, is_torn, rule
from trainplan.costmodel.runtimes.megatron.dispatchers import (
    deepep_groups,
    domain_gpus,
    gathered_tokens_stand_alone,
    hybridep_fills_domains,
    keeps_the_host,
    links_deepep,
    links_experts,
)
from trainplan.costmodel.runtimes.megatron.offload import offloads_without_graphs
from trainplan.costmodel.runtimes.megatron.options import (
    HYBRIDS_INTERLEAVE_NOTHING,
    INTERLEAVED,
    deepep_needs_ranks,
    delayed_weights_need_the_overlap,
    exchange_overlapped_in_fsdp,
    exchange_overlapped_with_compute,
    graph_of_step_recomputes_without_masks,
    graphed_routers_keep_their_norm,
    graphs_recompute_modules_only,
    graphs_recompute_without_masks,
    larger_groups,
    moments_need_sharding,
    offloaded_moments_are_whole,
    shared_experts_overlapped,
    tp_overlap_needs_sequence_parallel,
)
from trainplan.costmodel.runtimes.traits import Setting, Stated
from trainplan.costmodel.runtimes.traits.layers import is_hybrid
from trainplan.costmodel.runtimes.traits.needs import BULK_COPIES, DEEPEP
from trainplan.costmodel.runtimes.traits.settings import never


@rule("cp", "an exchange of context parallelism means nothing without it", "derived")
def context_exchange_needs_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """One rank has the whole sequence."""
    return np.asarray(table.cp == 1)


@rule(
    "tp",
    "the search tries overlap_tp_comm inside one scale-up domain alone",
    "NVIDIA/TransformerEngine @d0067d0d userbuffers-host.cpp, create_communicator_grouped2: user "
    "buffers are mapped over NVLink; no run in examples/accuracy overlaps beyond",
)
def tp_overlap_stays_in_domain(job: Job, table: LayoutTable) -> BoolColumn:
    """Buffers of other ranks are written directly."""
    return np.asarray((table.tp > 1) & (table.tp > domain_gpus(job)))


@rule(
    "schedule dp micro_batch_size pp",
    "groups of pp micro batches mean the same",
    "derived",
)
def groups_are_of_pp(job: Job, table: LayoutTable) -> BoolColumn:
    """No pipeline interleaves, or in groups of as many micro batches as by default."""
    return np.asarray((table.schedule != INTERLEAVED) | ~larger_groups(job, table))


@rule(
    "tp",
    "the search tries overlap_shared_experts without tensor parallelism alone",
    "Megatron-LM core/transformer/moe/shared_experts.py, whose products give up their user buffers",
)
def shared_experts_stay_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """Beside an exchange their own traffic runs beside no product."""
    return np.asarray(table.tp > 1)


def _with_experts(job: Job) -> str | None:
    return None if job.model.moe else "the model has no experts"


def _sends_to_each_rank(job: Job) -> str | None:
    """Why a gather of all tokens is never the least; null: it may be.

    Source: derived; of all tokens (e - 1) / e of e times as many arrive as a rank has, in 16 bits
    and back in 32, or in 16 where Megatron-Bridge leaves the router there; of an all-to-all (e - 1)
    / e of top-k times as many, twice in 16 bits, and of its gathers over etp as many as top-k.
    """
    moe = job.model.moe
    posts = BULK_COPIES.missing(job) is None and not job.cluster.by_proxies
    if DEEPEP.missing(job) is None and (posts or domain_gpus(job) >= job.cluster.num_gpus):
        return "DeepEP and HybridEP send a token once to each rank that needs it"
    one = moe is not None and moe.num_experts_per_tok == 1
    return _with_experts(job) or ("a token goes to one expert" if one else None)


@rule(
    "ep etp",
    "the search tries moe_dispatcher=allgather where ep * etp > 1, ep is at most twice "
    "num_experts_per_tok, or between domains as many times as one has GPUs, and, where DeepEP "
    "starts, beyond its NVLink domain alone",
    "derived: a gather makes ep copies of a token, one of them for each node, an all-to-all as "
    "many as it has experts, and DeepEP one for each rank that needs it",
)
def gathers_fewer_copies(job: Job, table: LayoutTable) -> BoolColumn:
    """Beyond, the all-to-all sends less, inside nodes and between them."""
    most = job.model.moe.num_experts_per_tok if job.model.moe else 1
    ranks, domain = table.ep * table.etp, domain_gpus(job)
    inside = (ranks <= domain) & ~is_torn(ranks, domain, job.cluster.num_gpus)
    once = inside & (DEEPEP.missing(job) is None)
    times = np.where(ranks > domain, max(2, domain), 2)
    return np.asarray((ranks == 1) | (table.ep > times * most) | once)


def _posts_by_gpus(job: Job) -> str | None:
    if not job.cluster.by_proxies:
        return "slower than DeepEP, the default across nodes"
    return _with_experts(job)


def _of_dense_step(job: Job) -> str | None:
    """As the exporter, which writes no paged stash."""
    return "its dispatch reads sizes on the host" if job.model.moe else None


def _of_step_with_experts(job: Job) -> str | None:
    return keeps_the_host(job) or _with_experts(job)


def _in_whole_groups(job: Job) -> str | None:
    """Do all micro batches that a layout may have fill groups of its pipeline ranks?"""
    batch, gpus = job.training.global_batch_size, job.cluster.num_gpus
    most = job.model.num_hidden_layers // 2
    shapes = ((pp, m) for pp in _divisors(gpus) if 1 < pp <= most for m in _divisors(batch))
    rest = any(m > pp and m % pp for pp, m in shapes)
    return None if rest else "micro batches fill groups of pp"


@lru_cache(maxsize=64)
def _divisors(number: int) -> tuple[int, ...]:
    small = [one for one in range(1, isqrt(number) + 1) if number % one == 0]
    return *small, *(number // one for one in small)


def _interleaving_experts(job: Job) -> str | None:
    return _with_experts(job) or (HYBRIDS_INTERLEAVE_NOTHING if is_hybrid(job.model) else None)


def _with_shared_experts(job: Job) -> str | None:
    moe = job.model.moe
    if moe is None or not moe.shared_expert_intermediate_size:
        return "the model has no shared experts"
    if moe.latent_size:
        return "experts of a latent width overlap with nothing"
    return "overlap_moe_a2a excludes it" if job.options.overlap_moe_a2a else None


def _with_shared_experts_alone(job: Job) -> str | None:
    interleaved = None if is_hybrid(job.model) else "overlap_moe_a2a hides more"
    return _with_shared_experts(job) or interleaved


def _with_shared_experts_of_layers(job: Job) -> str | None:
    return _with_shared_experts(job) or ("tried anyhow" if is_hybrid(job.model) else None)


def _with_user_buffers(job: Job) -> str | None:
    return "latent attention has no user buffers" if job.model.mla else None


def _of_adamw(job: Job) -> str | None:
    """Moments have a type of their own with the one optimizer, and no level settles it."""
    usual = job.training.optimizer.name == "adamw"
    return _by_level(job) if usual else "they are AdamW's"


def _by_level(job: Job) -> str | None:
    level = job.training.state_precision
    return None if level == "o0" else f"--state-precision {level} states it"


def _gradients_in_bf16(job: Job) -> str | None:
    return _by_level(job) or _with_fp16(job)


def _with_fp16(job: Job) -> str | None:
    return "gradients of fp16 are not summed in bf16" if job.training.precision == "fp16" else None


def _rules_of_graphs(job: Job) -> tuple[Rule, ...]:
    """Those that the options of a job let bind."""
    partial = job.options.cuda_graph == "partial"
    flexible = partial and job.options.moe_dispatcher in ("deepep", "hybridep")
    flexible |= partial and job.options.overlap_shared_experts is True
    alongside = partial and job.options.overlap_moe_a2a
    return (
        *((graphs_recompute_modules_only,) if partial else ()),
        *((graphs_recompute_without_masks,) if job.options.dropout else ()),
        *((graph_of_step_recomputes_without_masks,) if job.options.dropout and not partial else ()),
        *((offloads_without_graphs,) if job.may_offload_activations else ()),
        *((graphed_routers_keep_their_norm,) if flexible else ()),
        *((exchange_overlapped_in_fsdp,) if alongside else ()),
    )


def _rules_of_dispatchers(job: Job) -> tuple[Rule, ...]:
    deepep = job.options.moe_dispatcher == "deepep"
    own = (deepep_needs_ranks, deepep_groups) if deepep else (hybridep_fills_domains,)
    graphed = job.options.cuda_graph == "partial"
    return (*own, *((graphed_routers_keep_their_norm,) if graphed else ()))


def _rules_of_gather(job: Job) -> tuple[Rule, ...]:
    return (gathered_tokens_stand_alone,)


def _rules_of_exchange(job: Job) -> tuple[Rule, ...]:
    graphed = job.options.cuda_graph == "partial"
    return (exchange_overlapped_with_compute, *((exchange_overlapped_in_fsdp,) if graphed else ()))


def _with_overlapped_exchange(job: Job) -> str | None:
    return _with_experts(job) or (None if job.options.overlap_moe_a2a else "needs overlap_moe_a2a")


def _rules_of_delay(job: Job) -> tuple[Rule, ...]:
    return (delayed_weights_need_the_overlap,)


def _rules_of_shared_experts(job: Job) -> tuple[Rule, ...]:
    graphed = job.options.cuda_graph == "partial"
    own = (shared_experts_overlapped, shared_experts_stay_whole)
    return (*own, *((graphed_routers_keep_their_norm,) if graphed else ()))


def _rules_of_tensor_traffic(job: Job) -> tuple[Rule, ...]:
    return tp_overlap_needs_sequence_parallel, tp_overlap_stays_in_domain


def _rules_of_moments(job: Job) -> tuple[Rule, ...]:
    return moments_need_sharding, offloaded_moments_are_whole


def _sends_less(job: Job) -> bool:
    """Do GPUs post messages themselves, and carry no wider routing weights than an operation reads?

    Source: `costmodel.comm.proxies`; `costmodel.blocks.operations._weight_bytes`.
    """
    if job.cluster.by_proxies:
        return False
    return job.model.moe is None or not job.model.moe.expert_bias


PARTIAL, WHOLE_OF_EXPERTS, WHOLE_OF_DENSE = (
    Setting("cuda_graph", value, "--cuda-graph-impl", lacks, _rules_of_graphs, rank=rank)
    for value, lacks, rank in (
        ("partial", _with_experts, None),
        ("full_iteration", _of_step_with_experts, None),
        ("full_iteration", _of_dense_step, 2),
    )
)
"""Graphs of experts take memory of their own: a pool of temporaries, or pages of a stash."""
DISPATCHERS = tuple(
    Setting(
        "moe_dispatcher",
        name,
        "--moe-flex-dispatcher-backend",
        lacks,
        _rules_of_dispatchers,
        rank=rank,
        beats_default=beats_default,
    )
    for name, lacks, rank, beats_default in (
        ("hybridep", links_experts, 1, never),
        ("deepep", links_deepep, 2, _sends_less),
    )
)
"""HybridEP gathers which experts every token chose, which the others do not: it is DeepEP and a
gather more, and may be slower than the default."""
POSTED_BY_HOST = Setting(
    "moe_dispatcher",
    "alltoall",
    "--moe-token-dispatcher-type",
    _posts_by_gpus,
    rank=None,
)
"""Of a runtime whose default across nodes is DeepEP, which loses where the host posts messages."""
GATHERED = Setting(
    "moe_dispatcher",
    "allgather",
    "--moe-token-dispatcher-type",
    _sends_to_each_rank,
    _rules_of_gather,
    rank=None,
    idle=gathers_fewer_copies,
)
"""Experts of one tensor group are tensor-local with it: Chen et al., PPMoE, arXiv:2304.11414."""
OVERLAPPED_WITH_COMPUTE = Setting(
    name="overlap_moe_a2a",
    value=True,
    source="--overlap-moe-expert-parallel-comm",
    lacks=_interleaving_experts,
    rules=_rules_of_exchange,
    rank=None,
)
"""Slower where it hides little: the host launches more, and products run at the clock of a layer
that does not wait, though passes without an opposite one wait for the whole exchange."""
DELAYED_WEIGHTS = Setting(
    name="delay_wgrad",
    value=True,
    source="--delay-wgrad-compute",
    lacks=_with_overlapped_exchange,
    rules=_rules_of_delay,
    rank=None,
    level="all",
)
"""Twin br-q30-16h100-overlap-a2a of the measured runs: no difference without a pipeline."""
# with overlap_moe_a2a it was the answer of none of three jobs, and took a quarter more to search
OVERLAPPED_WITH_SHARED = (
    Setting(
        "overlap_shared_experts",
        True,  # noqa: FBT003 (a value)
        "--moe-shared-expert-overlap",
        _with_shared_experts_alone,
        _rules_of_shared_experts,
    ),
    Setting(
        "overlap_shared_experts",
        True,  # noqa: FBT003 (a value)
        "--moe-shared-expert-overlap",
        _with_shared_experts_of_layers,
        _rules_of_shared_experts,
        level="all",
    ),
)
OVERLAPPING_PRODUCTS = Setting(
    name="overlap_tp_comm",
    value=True,
    source="--tp-comm-overlap",
    lacks=_with_user_buffers,
    rules=_rules_of_tensor_traffic,
)
# a ring was the fastest, or as fast, on all of ten jobs of 4 k to 1 M tokens, while the search for
# the others took half as long again
EXCHANGES = tuple(
    Setting(
        "cp_comm_type",
        name,
        "--cp-comm-type",
        rank=None,
        idle=context_exchange_needs_ranks,
        level="all",
    )
    for name in ("a2a", "all_gather")
)
_OF_GROUPS = "--microbatch-group-size-per-virtual-pipeline-stage"
GROUPS = (
    Setting(
        "microbatch_group_size",
        "least",
        _OF_GROUPS,
        _in_whole_groups,
    ),
    Setting(
        "microbatch_group_size", "double", _OF_GROUPS, rank=None, idle=groups_are_of_pp, level="all"
    ),
)
"""Micro batches that fill no groups of pp, with all others as by default; messages that groups of
twice pp leave time, for more activations in flight."""
MOMENTS = Setting(
    "moment_dtype",
    "bf16",
    "--exp-avg-dtype and --exp-avg-sq-dtype",
    lacks=_of_adamw,
    rules=_rules_of_moments,
    level="all",
)
GRADIENTS = Setting(
    "gradient_dtype", "bf16", "--grad-reduce-in-bf16", _gradients_in_bf16, level="all"
)

NEMO_SETTINGS = (*GROUPS, DISPATCHERS[1], GATHERED, *OVERLAPPED_WITH_SHARED, *EXCHANGES, MOMENTS)
"""Of the release of 2025, before HybridEP, paged stashes and the exchange beside compute."""
BRIDGE_SETTINGS = (
    *GROUPS,
    PARTIAL,
    WHOLE_OF_EXPERTS,
    WHOLE_OF_DENSE,
    *DISPATCHERS,
    POSTED_BY_HOST,
    GATHERED,
    OVERLAPPED_WITH_COMPUTE,
    DELAYED_WEIGHTS,
    *OVERLAPPED_WITH_SHARED,
    *EXCHANGES,
    MOMENTS,
)
"""Of runtimes whose gradients are in bf16 and whose tensor traffic runs beside products anyhow."""
CORE_SETTINGS = (
    *GROUPS,
    PARTIAL,
    WHOLE_OF_DENSE,
    *DISPATCHERS,
    GATHERED,
    OVERLAPPED_WITH_COMPUTE,
    DELAYED_WEIGHTS,
    *OVERLAPPED_WITH_SHARED,
    OVERLAPPING_PRODUCTS,
    *EXCHANGES,
    MOMENTS,
    GRADIENTS,
)

_OF_NEITHER = (
    Stated("overlap_grad_reduce", value=False),
    Stated("overlap_param_gather", value=False),
)
CORE_STATED = (
    *_OF_NEITHER,
    Stated(
        "moe_dispatcher",
        "ncclep",
        "Transformer Engine builds it where NVTE_BUILD_WITH_NCCL_EP is 1 alone, and no run has it",
    ),
)
LM_STATED = (*CORE_STATED, Stated("overlap_param_gather", value=True))
"""Gathers beside passes wait in each pipeline rank: by default they run ahead of them there."""
NEMO_STATED = (*_OF_NEITHER, Stated("overlap_tp_comm", value=False))
BRIDGE_STATED = (*CORE_STATED, Stated("overlap_tp_comm", value=False))
