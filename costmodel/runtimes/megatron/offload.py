"""Which activations Megatron-LM keeps on the host, and beside what.

Files and lines as in `costmodel.runtimes.megatron.core`; FO is
megatron/core/pipeline_parallel/fine_grained_activation_offload.py, TL
megatron/core/transformer/transformer_layer.py.
"""

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import OFFLOAD_MODULES
from trainplan.costmodel.layouts import FULL, LayoutTable, recomputes, rule
from trainplan.costmodel.layouts import offloads as offloaded
from trainplan.costmodel.runtimes.traits import Offload

ATTENTION = ("core_attn", "attn_proj")
EXPERTS = ("expert_fc1", "moe_act")
IN_MOE_LAYERS = ("mlp_norm", *EXPERTS)
"""Modules that only mixture-of-experts layers have: elsewhere the norm is a part of the product
behind it, and `IdentityOp` stands in its place (TL:1553, gpt_layer_specs.py)."""


def offloads(model: ModelSpec) -> tuple[Offload, ...]:
    """What the search tries: modules from the cheapest for their bytes to all there are.

    Beside them nothing is recomputed, or what is cheap to recompute.
    Source: NVIDIA-NeMo/Megatron-Bridge @067f987d, `perf_recipes/deepseek`, which offload
    `core_attn attn_proj` or `expert_fc1`; docs/user-guide/features/
    fine_grained_activation_offloading.md, "Combining with Fine-Grained Recomputation"; that sets
    in between are left out is assumed.
    """
    if model.moe is None:
        return Offload(ATTENTION), Offload(("qkv_linear", *ATTENTION))
    sets = (EXPERTS[:1], EXPERTS, ATTENTION, (*ATTENTION, *EXPERTS))
    alongside = [
        Offload(some, _cheap(model, some)) for some in (*sets, (*ATTENTION, *IN_MOE_LAYERS))
    ]
    return (*(Offload(some) for some in (*sets, OFFLOAD_MODULES)), *alongside)


def _cheap(model: ModelSpec, offloaded: tuple[str, ...]) -> tuple[str, ...]:
    """What takes little time to recompute, and is kept beside some offloaded modules."""
    shared = model.moe is not None and model.moe.shared_expert_intermediate_size
    ups = model.mla is not None and "core_attn" not in offloaded
    names = {"layernorm": True, "mla_up_proj": ups, "moe_act": True, "shared_experts": shared}
    return tuple(name for name, there in names.items() if there)


@rule(
    "offload_modules",
    "offload_modules names a part this model does not have: leave it out",
    "Megatron-LM transformer_layer.py:1553 (no mlp_norm where the norm is fused); moe/experts.py",
)
def offload_modules_exist(job: Job, table: LayoutTable) -> BoolColumn:
    """Parts of experts need experts."""
    return np.asarray(offloaded(table, *IN_MOE_LAYERS) & (job.model.moe is None))


@rule(
    "offload_modules",
    "offload_modules with attn_proj needs core_attn, whose output it is",
    "Megatron-LM transformer_config.py:2148",
)
def attn_proj_offloads_with_core(job: Job, table: LayoutTable) -> BoolColumn:
    """One tensor leaves the device only if both who hold it let go."""
    return np.asarray(offloaded(table, "attn_proj") & ~offloaded(table, "core_attn"))


@rule(
    "offload_modules recompute recompute_modules",
    "what is recomputed is not kept, so it cannot wait on the host: take it out of "
    "offload_modules, or recompute less",
    "Megatron-LM transformer_config.py:2165 (moe); attention.py, "
    "checkpoint_core_attention; multi_latent_attention.py and "
    "random.py, discard_output_and_register_recompute; derived for full recomputation",
)
def offloads_what_is_kept(job: Job, table: LayoutTable) -> BoolColumn:
    """No module both offloads its inputs and drops them."""
    both = (table.recompute == FULL) & (table.offload_modules != 0)
    both |= recomputes(table, "core_attn") & offloaded(table, *ATTENTION)
    both |= recomputes(table, "mla_up_proj") & offloaded(table, "core_attn")
    both |= recomputes(table, "moe") & offloaded(table, *EXPERTS)
    separate = job.model.mla is not None
    both |= recomputes(table, "layernorm") & offloaded(table, "qkv_linear") & separate
    return np.asarray(both)


@rule(
    "offload_modules zero_stage",
    "offload_modules is not known to run on Megatron-FSDP: use zero_stage 0 or 1",
    "assumed: tests/unit_tests/pipeline_parallel/test_fine_grained_activation_offloading.py has no "
    "such case",
)
def offloads_without_fsdp(job: Job, table: LayoutTable) -> BoolColumn:
    """What shards weights moves their storage, too."""
    return np.asarray((table.offload_modules != 0) & (table.zero_stage >= 2))


@rule(
    "offload_modules",
    "offload_modules with CUDA graphs is not modelled: leave out one of them",
    "Megatron-LM transformer_layer.py:1563-1615 (some stay, others need their own release)",
)
def offloads_without_graphs(job: Job, table: LayoutTable) -> BoolColumn:
    """A graph records which copies it makes."""
    graphs = job.options.cuda_graph not in (None, "none")
    return np.asarray((table.offload_modules != 0) & graphs)


OFFLOAD_RULES = (
    offload_modules_exist,
    attn_proj_offloads_with_core,
    offloads_what_is_kept,
    offloads_without_fsdp,
    offloads_without_graphs,
)
