"""Options for the parallel degrees and for recomputation."""

from collections.abc import Iterator

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import ContextExchange, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.shards import context_ways, heads_to_cut
from trainplan.planner.launch import Argument
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write.pipeline import pipeline_arguments


def layout_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Degrees of every axis; data parallelism is what is left of the world."""
    model = job.model
    yield keys.TP(layout.tp)
    if layout.sequence_parallel and layout.tp > 1:
        yield keys.SEQUENCE_PARALLEL()
    yield from pipeline_arguments(model, layout)
    yield keys.CP(layout.cp)
    if layout.cp_heads > 1:
        sizes = layout.cp_heads, layout.cp // layout.cp_heads
        yield keys.EXCHANGE("a2a+p2p")
        yield keys.NESTED_SIZES(*sizes)
    elif layout.cp > 1:
        yield keys.EXCHANGE(context_exchange(job, layout, traits))
    if model.moe:
        # Said even where it is 1: the runtime would otherwise cut experts like dense layers.
        yield keys.EP(layout.ep)
        yield keys.ETP(layout.etp)
    elif layout.ep > 1 or layout.etp > 1:
        raise UnsupportedError(
            f"ep = {layout.ep} and etp = {layout.etp} cut experts and {model.name!r} has none; "
            "set both to 1"
        )
    if layout.gtp > 1:
        yield keys.WEIGHT_SHARDS(layout.tp * layout.gtp)
    if layout.egtp > 1:
        yield keys.EXPERT_SHARDS(layout.etp * layout.egtp)
    yield keys.MICRO_BATCH(layout.micro_batch_size)


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
        yield keys.RECOMPUTE("selective")
        yield keys.RECOMPUTED_MODULES(*layout.recompute_modules)
    elif layout.recompute_method and layout.recompute_num_layers:
        yield keys.RECOMPUTE("full")
        yield keys.RECOMPUTE_METHOD(layout.recompute_method)
        yield keys.RECOMPUTED_LAYERS(layout.recompute_num_layers)
