"""Options for the parallel degrees and for recomputation."""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.errors import UnsupportedError
from costmodel.spec.layout import Layout
from costmodel.spec.model import ModelSpec
from planner.exporters.config import Argument, option, switch
from planner.exporters.megatron_lm.pipeline import pipeline_arguments


def layout_arguments(model: ModelSpec, layout: Layout) -> Iterator[Argument]:
    """Degrees of every axis; data parallelism is what is left of the world."""
    yield option("layout", "--tensor-model-parallel-size", layout.tp)
    if layout.sequence_parallel and layout.tp > 1:
        yield switch("layout", "--sequence-parallel")
    yield from pipeline_arguments(model, layout)
    yield option("layout", "--context-parallel-size", layout.cp)
    if layout.cp > 1:
        yield option("layout", "--cp-comm-type", context_exchange(model, layout))
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


def context_exchange(model: ModelSpec, layout: Layout) -> str:
    """How the pieces of a sequence meet: a ring, except where attention needs another way.

    Source: Transformer Engine, commit d0067d0d, `context_parallel.py`, lines 5054-5068: windows
    need a2a or all_gather, sinks need a2a; a2a cuts the heads of one rank.

    Raises:
        UnsupportedError: Sinks, and heads that cannot be cut.
    """
    groups = model.num_attention_heads if model.mla else model.num_key_value_heads
    heads_divide = groups % (layout.tp * layout.cp) == 0
    if model.attention_sinks and not heads_divide:
        raise UnsupportedError(
            "Transformer Engine runs attention sinks with cp > 1 only if tp * cp divides the "
            f"key-value heads; {groups} heads and tp * cp = {layout.tp * layout.cp}: lower cp"
        )
    if model.attention_sinks or (model.num_sliding_window_layers and heads_divide):
        return "a2a"
    return "all_gather" if model.num_sliding_window_layers else "p2p"


def recompute_arguments(layout: Layout) -> Iterator[Argument]:
    """What the backward pass computes again."""
    if layout.recompute == "selective":
        yield option("recompute", "--recompute-granularity", "selective")
        yield option("recompute", "--recompute-modules", *layout.recompute_modules)
    elif layout.recompute_method and layout.recompute_num_layers:
        yield option("recompute", "--recompute-granularity", "full")
        yield option("recompute", "--recompute-method", layout.recompute_method)
        yield option("recompute", "--recompute-num-layers", layout.recompute_num_layers)
