"""Which layouts the options of a Megatron-LM run leave.

Files and lines as in `costmodel.runtimes.megatron.core`.
"""

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn, distinct
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import (
    FULL,
    NONE,
    LayoutTable,
    num_microbatches,
    recomputes,
    rule,
)
from trainplan.costmodel.runtimes.traits.layers import is_hybrid
from trainplan.costmodel.schedules import group_runs, group_size

INTERLEAVED = SCHEDULE_NAMES.index("interleaved")


@rule(
    "recompute",
    "cuda_graph=partial excludes full recomputation: recompute modules",
    "Megatron-LM transformer_config.py:2855-2869",
)
def graphs_recompute_modules_only(job: Job, table: LayoutTable) -> BoolColumn:
    """What is recomputed lies inside a graph or outside of all.

    Where `moe` is recomputed, attention alone is graphed.
    """
    return np.asarray((table.recompute == FULL) & (job.options.cuda_graph == "partial"))


@rule(
    "recompute_modules",
    "CUDA graphs with dropout=true recompute no core_attn",
    "Megatron-LM transformer_config.py:2879-2887",
)
def graphs_recompute_without_masks(job: Job, table: LayoutTable) -> BoolColumn:
    """A recomputed module that is graphed takes no random numbers."""
    graphed = job.options.dropout is True and job.options.cuda_graph not in (None, "none")
    return np.asarray(recomputes(table, "core_attn") & graphed)


@rule(
    "recompute_modules",
    "cuda_graph=full_iteration with dropout=true recomputes no mlp and no moe",
    "Megatron-LM transformer_config.py:2888-2908",
)
def graph_of_step_recomputes_without_masks(job: Job, table: LayoutTable) -> BoolColumn:
    """As above, of modules that a graph of some does not hold."""
    whole = job.options.dropout is True and job.options.cuda_graph == "full_iteration"
    return np.asarray((recomputes(table, "mlp") | recomputes(table, "moe")) & whole)


HYBRIDS_INTERLEAVE_NOTHING = "hybrid models interleave no passes of two micro batches"


@rule(
    "ep",
    f"{HYBRIDS_INTERLEAVE_NOTHING}: leave overlap_moe_a2a out",
    "Megatron-LM core/models/gpt/gpt_model.py:843, build_schedule_plan, which HybridModel lacks",
)
def hybrids_exchange_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """Only GPT models have a plan of both passes, layer by layer."""
    enabled = job.options.overlap_moe_a2a is True and job.model.moe is not None
    return np.full(len(table), enabled and is_hybrid(job.model))


@rule(
    "ep pp vpp recompute recompute_modules",
    "overlap_moe_a2a needs ep > 1, virtual stages where pp > 1 and at most one multi-token "
    "prediction module, and recomputes neither layers nor moe",
    "Megatron-LM transformer_config.py:3002-3046",
    name="exchange_beside_compute",
)
def exchange_overlapped_with_compute(job: Job, table: LayoutTable) -> BoolColumn:
    """Passes of two micro batches are interleaved, layer by layer."""
    whole = (table.recompute == FULL) | recomputes(table, "moe")
    alone = (table.ep == 1) | ((table.pp > 1) & (table.vpp == 1))
    enabled = job.options.overlap_moe_a2a is True and job.model.moe is not None
    return np.asarray((alone | whole | (job.model.num_nextn_predict_layers > 1)) & enabled)


@rule(
    "ep",
    "delay_wgrad needs overlap_moe_a2a, and without cuda_graph=partial where attention has biases",
    "Megatron-LM transformer_config.py:3073 and training/arguments.py:1903",
)
def delayed_weights_need_the_overlap(job: Job, table: LayoutTable) -> BoolColumn:
    """They are nodes of the plan of both passes; a graph of attention has none of its biases."""
    model, options = job.model, job.options
    biased = model.qkv_bias or model.attention_output_bias or model.mlp_bias
    wrong = options.overlap_moe_a2a is not True or (options.cuda_graph == "partial" and biased)
    return np.full(len(table), bool(options.delay_wgrad and model.moe is not None and wrong))


@rule(
    "recompute_modules",
    "overlap_shared_experts excludes overlap_moe_a2a, experts of a latent width and recomputed "
    "shared_experts: leave it out",
    "Megatron-LM transformer_config.py:1994 and 3040; core/transformer/moe/moe_layer.py:477",
    name="shared_experts_beside_exchange",
)
def shared_experts_overlapped(job: Job, table: LayoutTable) -> BoolColumn:
    """What is on a stream of its own is neither taken apart nor repeated alone."""
    moe = job.model.moe
    if job.options.overlap_shared_experts is not True or moe is None:
        return np.zeros(len(table), dtype=bool)
    never = job.options.overlap_moe_a2a is True or moe.latent_size is not None
    again = recomputes(table, "shared_experts") & bool(moe.shared_expert_intermediate_size)
    return np.asarray(again | never)


@rule(
    "zero_stage",
    "overlap_moe_a2a with zero_stage 2 or 3 excludes cuda_graph=partial",
    "FSDP:182, graphs of single layers",
    name="exchange_beside_compute_in_fsdp",
)
def exchange_overlapped_in_fsdp(job: Job, table: LayoutTable) -> BoolColumn:
    """Megatron-FSDP gathers weights between the halves of a layer, outside of any graph of it."""
    options, moe = job.options, job.model.moe is not None
    enabled = moe and options.overlap_moe_a2a is True and options.cuda_graph == "partial"
    return np.asarray((table.zero_stage >= 2) & enabled)


@rule(
    "ep etp",
    "moe_dispatcher=deepep needs experts on more than one rank: use ep or etp > 1",
    "Megatron-LM core/transformer/moe/token_dispatcher.py:1836",
)
def deepep_needs_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """There is nothing to dispatch on one rank."""
    enabled = job.options.moe_dispatcher == "deepep" and job.model.moe is not None
    return np.asarray((table.ep * table.etp == 1) & enabled)


@rule(
    "pp recompute offload_modules",
    "offload_activation_layers needs pp=1, and excludes recomputation, offload_modules and "
    "cuda_graph=partial",
    "Megatron-LM transformer_config.py:1891, 1896, 2129 and 2800",
)
def layers_on_the_host(job: Job, table: LayoutTable) -> BoolColumn:
    """Offload by layer is the older of two ways, and stands alone."""
    alongside = (table.pp > 1) | (table.recompute != NONE) | (table.offload_modules != 0)
    graphed = job.options.cuda_graph == "partial"
    return np.asarray((alongside | graphed) & bool(job.options.offload_activation_layers))


@rule(
    "zero_stage",
    "moment_dtype below fp32 needs the distributed optimizer: use zero_stage=1 or more",
    "Megatron-LM core/optimizer/__init__.py:1057 (precision-aware optimizer)",
)
def moments_need_sharding(job: Job, table: LayoutTable) -> BoolColumn:
    """Only sharded states have a type of their own."""
    return np.asarray((table.zero_stage == 0) & _narrow_moments(job))


@rule(
    "offload_optimizer",
    "moment_dtype below fp32 has no effect with optimizer offload, whose moments stay fp32: "
    "choose one",
    "Megatron-LM core/optimizer/__init__.py:517-545, HybridDeviceOptimizer does not get "
    "exp_avg_dtype",
)
def offloaded_moments_are_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """The optimizer of both devices makes its own moments, whatever its arguments say."""
    return np.asarray((table.offload_optimizer > 0) & _narrow_moments(job))


def _narrow_moments(job: Job) -> bool:
    return job.options.moment_dtype not in (None, "fp32")


@rule(
    "zero_stage",
    "sgd has no distributed optimizer: use zero_stage=0, or another optimizer",
    "Megatron-LM core/optimizer/distrib_optimizer.py:688, and __init__.py:617, init_state_fn = "
    "None",
)
def sgd_is_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """Its checkpoints cannot be sharded."""
    return np.asarray((table.zero_stage > 0) & (job.training.optimizer.name == "sgd"))


@rule(
    "zero_stage",
    "lion, muon and soap do not run under fp16 or over Megatron-FSDP: use bf16 and zero_stage 0 or "
    "1, or adamw",
    "Megatron-LM core/optimizer/__init__.py:777 (fp16) and training/arguments.py:1738 (FSDP)",
)
def emerging_optimizers_are_bf16(job: Job, table: LayoutTable) -> BoolColumn:
    """Those of the package emerging_optimizers."""
    emerging = job.training.optimizer.name not in ("adamw", "sgd")
    half = job.training.precision == "fp16"
    return np.asarray(((table.zero_stage >= 2) | half) & emerging)


@rule(
    "tp sequence_parallel",
    "overlap_tp_comm with tp > 1 needs sequence_parallel",
    "Megatron-LM arguments.py:1441",
)
def tp_overlap_needs_sequence_parallel(job: Job, table: LayoutTable) -> BoolColumn:
    """Gathers and scatters are what runs beside products."""
    whole = (table.tp > 1) & (table.sequence_parallel == 0)
    return np.asarray(whole & (job.options.overlap_tp_comm is True))


_with_reductions = rule(
    "zero_stage pp vpp",
    "overlap_grad_reduce=false leaves no overlap of gathers: add overlap_param_gather=false",
    "Megatron-LM arguments.py:1024",
    name="gathers_overlap_with_reductions",
)


@_with_reductions
def gathers_overlap_with_reductions(job: Job, table: LayoutTable) -> BoolColumn:
    """Both run in the buckets of one buffer."""
    options = job.options
    alone = options.overlap_grad_reduce is False and options.overlap_param_gather is not False
    return np.asarray((table.zero_stage >= 1) & alone)


@_with_reductions
def gathers_separately_or_with_reductions(job: Job, table: LayoutTable) -> BoolColumn:
    """As above, of a runtime whose gathers (`Sharding.gathers_separately`) need no overlap."""
    by_itself = job.options.overlap_param_gather is None
    apart = (table.pp > 1) & (table.vpp == 1) & by_itself
    return np.asarray(gathers_overlap_with_reductions.broken(job, table) & ~apart)


@rule(
    "zero_stage",
    "zero_stage 2 and 3 reduce gradients during passes: leave overlap_grad_reduce=false out",
    "Megatron-LM core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py:331",
)
def fsdp_overlaps_always(job: Job, table: LayoutTable) -> BoolColumn:
    """Megatron-FSDP turns the overlap on, whatever its arguments say."""
    return np.asarray((table.zero_stage >= 2) & (job.options.overlap_grad_reduce is False))


@rule(
    "recompute_modules",
    "cuda_graph=partial with moe_dispatcher deepep or hybridep, or with overlap_shared_experts: "
    "recompute no layernorm without moe",
    "Megatron-LM transformer_layer.py:480-520, pre_mlp_layernorm is a buffer of the graph",
)
def graphed_routers_keep_their_norm(job: Job, table: LayoutTable) -> BoolColumn:
    """The norm before a graphed router would silently be kept, so the half of what is wanted."""
    flexible = job.options.moe_dispatcher in {"deepep", "hybridep"}
    flexible |= job.options.overlap_shared_experts is True
    graphed = flexible and job.model.moe is not None and job.options.cuda_graph == "partial"
    return np.asarray(recomputes(table, "layernorm") & ~recomputes(table, "moe") & graphed)


@rule(
    "tp",
    "activation_func_fp8_input_store is of gated SiLU alone: leave it out for this model",
    "Megatron-LM transformer_config.py:2467, supported only for SwiGLU",
)
def narrow_inputs_are_of_gated_silu(job: Job, table: LayoutTable) -> BoolColumn:
    """Other fused activations keep their inputs as they are."""
    stored = bool(job.options.activation_func_fp8_input_store)
    other = not job.model.gated_mlp or job.model.activation != "silu"
    return np.full(len(table), stored and other)


def _groups(job: Job, table: LayoutTable) -> tuple[IntColumn, BoolColumn]:
    """Micro batches of the groups of each row, and whether its step runs in them."""
    stated, microbatches = job.options.microbatch_group_size, num_microbatches(job, table)
    first, shape = distinct(table.pp, microbatches)
    pairs = list(zip(table.pp[first].tolist(), microbatches[first].tolist(), strict=True))
    sizes = [group_size(stated, *pair) for pair in pairs]
    runs = [group_runs(one, *pair) for one, pair in zip(sizes, pairs, strict=True)]
    return np.array(sizes, dtype=np.int64)[shape], np.array(runs, dtype=bool)[shape]


def larger_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Has a group of a row more than pp micro batches?"""
    return np.asarray(_groups(job, table)[0] > table.pp)


@rule(
    "schedule dp micro_batch_size pp",
    "microbatch_group_size must lie between pp and the micro batches of a step, with a last group "
    "of at least pp: use least",
    "Megatron-LM schedules.py:1161-1180",
)
def stated_groups_run(job: Job, table: LayoutTable) -> BoolColumn:
    """A smaller group, or a smaller rest, would wait for itself."""
    if job.options.microbatch_group_size is None:
        return np.zeros(len(table), dtype=bool)
    return np.asarray((table.schedule == INTERLEAVED) & ~_groups(job, table)[1])


@rule(
    "recompute_modules",
    "fp8_attention needs products in fp8 (not blockwise), mxfp8 or nvfp4, and a fused kernel whose "
    "core_attn is not recomputed: leave one out",
    "Megatron-LM core/fp8_utils.py:773-790 and fp4_utils.py:225; Transformer Engine, "
    "get_attention_backend",
)
def narrow_attention_needs_narrow_products(job: Job, table: LayoutTable) -> BoolColumn:
    """The recipe of the products says it; that of blocks does not."""
    options, training = job.options, job.training
    blocks = training.precision == "fp8" and options.fp8_recipe == "blockwise"
    wrong = not training.casts or blocks or options.attention == "unfused"
    return np.asarray((recomputes(table, "core_attn") | wrong) & bool(options.fp8_attention))


OPTION_RULES = (
    narrow_attention_needs_narrow_products,
    stated_groups_run,
    narrow_inputs_are_of_gated_silu,
    hybrids_exchange_alone,
    graphs_recompute_modules_only,
    graphs_recompute_without_masks,
    graph_of_step_recomputes_without_masks,
    exchange_overlapped_with_compute,
    exchange_overlapped_in_fsdp,
    shared_experts_overlapped,
    delayed_weights_need_the_overlap,
    deepep_needs_ranks,
    layers_on_the_host,
    moments_need_sharding,
    offloaded_moments_are_whole,
    sgd_is_whole,
    emerging_optimizers_are_bf16,
    tp_overlap_needs_sequence_parallel,
    gathers_overlap_with_reductions,
    fsdp_overlaps_always,
    graphed_routers_keep_their_norm,
)
