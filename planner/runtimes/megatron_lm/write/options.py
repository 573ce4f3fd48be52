"""Options for what a run sets beside its layout: kernels, graphs, overlap and number formats.

What is left out of `RuntimeOptions` is what the other modules write. Files and lines are those of
`costmodel.runtimes.megatron.core`.
"""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import LOW_PRECISION, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches, rule
from trainplan.costmodel.runtimes import RuntimeTraits, traits_of
from trainplan.costmodel.schedules import group_size
from trainplan.planner.launch import Argument, switch
from trainplan.planner.runtimes.megatron_lm import keys


def option_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Settings of the job that have options of their own.

    Raises:
        UnsupportedError: A setting that no option of this release gives, or not for this model.
    """
    options = job.options
    if reason := _unsupported(job):
        raise UnsupportedError(f"megatron-lm does not run {reason}")
    if options.attention == "unfused":
        yield keys.ATTENTION("unfused")
    if options.cross_entropy == "jit":
        yield keys.LOSS_FUSION()
        yield keys.LOSS_KERNEL("native")
    yield from _graph(job, layout, traits)
    size = group_size(options.microbatch_group_size, layout.pp, num_microbatches(job, layout))
    if layout.vpp > 1 and size != layout.pp:
        yield keys.GROUP(size)
    if options.overlap_tp_comm and layout.tp > 1:
        yield keys.TP_OVERLAP()
    if options.overlap_moe_a2a and job.model.moe:
        yield keys.EXPERT_OVERLAP()
        if options.delay_wgrad:
            yield keys.DELAYED_WEIGHTS()
    shared = job.model.moe is not None and job.model.moe.shared_expert_intermediate_size
    if options.overlap_shared_experts and shared:
        yield keys.SHARED_OVERLAP()
    if options.offload_activation_layers:
        layers = options.offload_activation_layers
        yield keys.HOST_LAYERS(layers)
    yield from _formats(job, layout, traits)


def _graph(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """A graph of the step needs its loss unchecked (A:1235); one of each layer, its modules.

    A router inside `moe` that is recomputed is graphed by none (transformer_config.py:2862).
    """
    graph = job.options.cuda_graph
    if graph == "full_iteration":
        yield keys.GRAPH("full_iteration")
        yield keys.LOSS_CHECK.off()
    elif graph == "partial":
        router = job.model.moe is not None and "moe" not in layout.recompute_modules
        modules: tuple[str, ...] = ("attn", "moe_router") if router else ("attn",)
        if router and traits.experts.dispatcher == "alltoall":
            modules += ("moe_preprocess",)  # else the norm before it is not recomputed (TL:480)
        yield keys.GRAPH("transformer_engine")
        yield keys.GRAPH_MODULES(*modules)


def _few_bits_alone(job: Job, traits: RuntimeTraits) -> bool:
    """Do the layers have no weights of 16 bits?"""
    low = traits.footprint.low_precision == "primary"
    return low and job.training.precision in LOW_PRECISION


@rule(
    "zero_stage offload_optimizer",
    "weights kept in few bits alone need a sharded optimizer, no part of it offloaded: use "
    "zero_stage 1 and offload 0, or bf16",
    "NVIDIA/Megatron-LM megatron/training/arguments.py, validate_args: fp8_param_gather",
)
def few_bits_are_sharded(job: Job, table: LayoutTable) -> BoolColumn:
    """An offloaded optimizer takes no weights of 8 bits, nor does one that is whole."""
    whole = (table.zero_stage == 0) | (table.offload_optimizer > 0)
    return np.asarray(whole & _few_bits_alone(job, traits_of(job)))


@rule(
    "zero_stage",
    "local saves were looked up with torch_dist alone, not with Megatron-FSDP: use zero_stage 0 or "
    "1, or --save async",
    "NVIDIA/Megatron-LM megatron/training/checkpointing.py, save_checkpoint: local saves take a "
    "state of ShardedTensors, Megatron-FSDP's holds DTensors",
)
def fsdp_saves_no_copies(job: Job, table: LayoutTable) -> BoolColumn:
    """Local saves of shards of weights or gradients."""
    failures = job.cluster.failures
    local = failures is not None and failures.save == "local"
    return np.asarray((table.zero_stage > 1) & local)


def _formats(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    options, precision = job.options, job.training.precision
    if options.gradient_dtype == "bf16":
        yield keys.NARROW_SUMS()
    if options.moment_dtype not in (None, "fp32"):
        yield switch("precision", keys.PRECISION_AWARE.flag)
        yield keys.FIRST_MOMENT(options.moment_dtype)
        yield keys.SECOND_MOMENT(options.moment_dtype)
    if _few_bits_alone(job, traits):
        yield switch("precision", f"--{'fp4' if precision == 'nvfp4' else 'fp8'}-param-gather")
        if precision == "mxfp8":
            yield keys.REUSED_BUFFER()


def _unsupported(job: Job) -> str | None:
    """A setting of the job that no argument of this release gives, and what to do."""
    options, model = job.options, job.model
    reasons = {
        "cross_entropy=fused: Transformer Engine's is switched off in this release (Megatron-LM "
        "training/arguments.py:1697); "
        "choose jit or unfused": options.cross_entropy == "fused",
        "compile=false: fused kernels are its default; leave the option out": options.compile
        is False,
        "cuda_graph=full_iteration for a mixture of experts, whose dispatch reads sizes on the "
        "host; choose partial": model.moe is not None and options.cuda_graph == "full_iteration",
        "overlap_tp_comm for latent attention, whose projections have no user buffers: the first "
        "switches it off for all layers (core/extensions/transformer_engine.py:1176); leave the "
        "option out": model.mla is not None and options.overlap_tp_comm is True,
        "activation_func_fp8_input_store=true, which no argument of this release gives; export to "
        "megatron-bridge": options.activation_func_fp8_input_store is True,
        "fp8_attention=true, which no argument of this release gives; export to megatron-bridge": (
            options.fp8_attention is True
        ),
        "gradient_dtype=bf16 with fp16; leave the option out": options.gradient_dtype == "bf16"
        and job.training.precision == "fp16",
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
