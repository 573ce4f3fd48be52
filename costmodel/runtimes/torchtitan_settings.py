"""What a search may set of a torchtitan run, and the layouts that exclude it.

Files are those of pytorch/torchtitan at the commit of `planner.runtimes.torchtitan`. Why a value
is never slower: as in `costmodel.runtimes.megatron.settings`.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, rule
from trainplan.costmodel.runtimes.megatron.dispatchers import (
    deepep_groups,
    domain_gpus,
    hybridep_fills_domains,
)
from trainplan.costmodel.runtimes.megatron.settings import DISPATCHERS, OVERLAPPING_PRODUCTS
from trainplan.costmodel.runtimes.traits import Setting

DISPATCHED = tuple(one.value for one in DISPATCHERS)


@rule(
    "pp ep offload_parameters",
    "cuda_graph=full_iteration runs without pipeline and without expert ranks, and holds no copies "
    "that the host waits for: use pp=1, ep=1 and no offload.parameters, or leave the option out",
    "pytorch/torchtitan trainer.py, _validate_cuda_graphs; distributed/cudagraph.py",
)
def step_graph_needs_fixed_shapes(job: Job, table: LayoutTable) -> BoolColumn:
    """Dispatchers of experts ask the host for sizes."""
    moves = (table.pp > 1) | (table.ep > 1) | (table.offload_parameters > 0)
    return np.asarray(moves & (job.options.cuda_graph == "full_iteration"))


@rule(
    "tp",
    "overlap_tp_comm writes into the memory of other GPUs of one scale-up domain: lower tp, or "
    "leave the option out",
    "pytorch/torchtitan distributed/compile.py, _maybe_enable_async_tp: symmetric memory",
)
def async_tp_stays_in_domain(job: Job, table: LayoutTable) -> BoolColumn:
    """Chunks of a product are copied between GPUs directly."""
    enabled = job.options.overlap_tp_comm is True
    return np.asarray((table.tp > max(domain_gpus(job), 1)) & enabled)


@rule(
    "tp",
    "overlap_tp_comm needs the compiler: leave compile=false out",
    "pytorch/torchtitan distributed/compile.py, _maybe_enable_async_tp",
)
def async_tp_is_compiled(job: Job, table: LayoutTable) -> BoolColumn:
    """The compiler cuts products in chunks."""
    return np.full(len(table), bool(job.options.overlap_tp_comm and _compiled(job)))


@rule(
    "ep",
    "moe_dispatcher=deepep or hybridep needs experts on more than one rank: use ep > 1, or leave "
    "the option out",
    "pytorch/torchtitan models/llama4/infra/parallelize.py of 2025: DeepEP requires ep_degree > 1",
)
def dispatchers_need_expert_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """There is nothing to dispatch on one rank."""
    enabled = job.options.moe_dispatcher in DISPATCHED and job.model.moe is not None
    return np.asarray((table.ep == 1) & enabled)


def _without_dispatcher(job: Job) -> str | None:
    """As the rules of both: the one needs expert ranks, the other none."""
    with_one = job.options.moe_dispatcher in DISPATCHED and job.model.moe is not None
    return "dispatchers read sizes on the host" if with_one else None


def _compiled(job: Job) -> str | None:
    return "it needs the compiler" if job.options.compile is False else None


def _of_async_tp(job: Job) -> tuple[Rule, ...]:
    return (async_tp_stays_in_domain,)


def _of_step_graph(job: Job) -> tuple[Rule, ...]:
    return (step_graph_needs_fixed_shapes,)


def _of_dispatchers(job: Job) -> tuple[Rule, ...]:
    deepep = job.options.moe_dispatcher == "deepep"
    return dispatchers_need_expert_ranks, deepep_groups if deepep else hybridep_fills_domains


SETTINGS = (
    Setting(
        name="cuda_graph",
        value="full_iteration",
        source="training.disable_cuda_graphs",
        lacks=_without_dispatcher,
        rules=_of_step_graph,
    ),
    *(replace(one, source="moe_comm_backend", rules=_of_dispatchers) for one in DISPATCHERS),
    replace(
        OVERLAPPING_PRODUCTS,
        source="compile.enable_async_tensor_parallel",
        lacks=_compiled,
        rules=_of_async_tp,
    ),
)
SETTING_RULES = (
    step_graph_needs_fixed_shapes,
    async_tp_stays_in_domain,
    async_tp_is_compiled,
    dispatchers_need_expert_ranks,
    deepep_groups,
    hybridep_fills_domains,
)
