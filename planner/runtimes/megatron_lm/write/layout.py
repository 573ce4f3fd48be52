"""Options for the parallel degrees and for recomputation."""

from collections.abc import Iterator

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import ContextExchange, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.shards import context_ways, heads_to_cut
from trainplan.planner.launch import Argument, option, switch
from trainplan.planner.runtimes.megatron_lm.write.pipeline import pipeline_arguments


def layout_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Degrees of every axis; data parallelism is what is left of the world."""
    model = job.model
    yield option("layout", "--tensor-model-parallel-size", layout.tp)
    if layout.sequence_parallel and layout.tp > 1:
        yield switch("layout", "--sequence-parallel")
    yield from pipeline_arguments(model, layout)
    yield option("layout", "--context-parallel-size", layout.cp)
    if layout.cp_heads > 1:
        sizes = layout.cp_heads, layout.cp // layout.cp_heads
        yield option("layout", "--cp-comm-type", "a2a+p2p")
        yield option("layout", "--hierarchical-context-parallel-sizes", *sizes)
    elif layout.cp > 1:
        yield option("layout", "--cp-comm-type", context_exchange(job, layout, traits))
    if model.moe:
        # Said even where it is 1: the runtime would otherwise cut experts like dense layers.
        yield option("layout", "--expert-model-parallel-size", layout.ep)
        yield option("layout", "--expert-tensor-parallel-size", layout.etp)
    elif layout.ep > 1 or layout.etp > 1:
        raise UnsupportedError(
            f"ep = {layout.ep} and etp = {layout.etp} cut experts and {model.name!r} has none; "
            "set both to 1"
        )
    yield option("layout", "--micro-batch-size", layout.micro_batch_size)


def context_exchange(job: Job, layout: Layout, traits: RuntimeTraits) -> ContextExchange:
    """How the pieces of a sequence meet: as the cost model prices it.

    Source: `costmodel.blocks.attention.context.context_ways`.

    Raises:
        UnsupportedError: Sinks, and heads that cannot be cut.
    """
    model = job.model
    groups = heads_to_cut(model)
    if model.attention_sinks and groups % (layout.tp * layout.cp):
        raise UnsupportedError(
            "Transformer Engine runs attention sinks with cp > 1 only if tp * cp divides the "
            f"key-value heads; {groups} heads and tp * cp = {layout.tp * layout.cp}: lower cp"
        )
    exchange = traits.communication.context_exchange
    heads, gathered = context_ways(model, exchange, LayoutTable.of([layout]))
    return "a2a" if heads.any() else "all_gather" if gathered.any() else "p2p"


def recompute_arguments(layout: Layout) -> Iterator[Argument]:
    """What the backward pass computes again."""
    if layout.recompute == "selective":
        yield option("recompute", "--recompute-granularity", "selective")
        yield option("recompute", "--recompute-modules", *layout.recompute_modules)
    elif layout.recompute_method and layout.recompute_num_layers:
        yield option("recompute", "--recompute-granularity", "full")
        yield option("recompute", "--recompute-method", layout.recompute_method)
        yield option("recompute", "--recompute-num-layers", layout.recompute_num_layers)
