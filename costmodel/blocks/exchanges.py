"""Exchanges of experts beside what a layer computes and what the host launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.blocks.parts import Part, PassSeconds, Shapes
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.comm import group


def waits_for_exchange(shapes: Shapes) -> BoolColumn:
    """Is an exchange waited for whatever the host still launches?

    Where proxies of the host post it, launches wait with it.
    Source: pairs of runs on EFA, aws-q30-* of examples/accuracy/twins.jsonl: UCCL and NVSHMEM
    lengthen a layer by as much for each token at micro batch 1, where launches set the pace, as
    at 4.
    """
    across = group(shapes.machine, shapes.table.ep, shapes.table.etp).nodes > 1
    return np.asarray(across & shapes.machine.by_proxies)


def with_exposed(shapes: Shapes, seconds: PassSeconds, launched: FloatColumn) -> PassSeconds:
    """A pass with what of its overlapped exchange outlasts all that runs beside it.

    `launched` are the seconds of the launches that go on beside it.
    Source: derived; no more of an exchange hides than the compute or the launches beside it last.
    """
    if not shapes.traits.experts.overlaps:
        return seconds
    hidden = seconds.ep_comm * (1 / shapes.machine.constants.expert_overlap_exposed - 1)
    along = np.maximum(launched, seconds.total - seconds.ep_comm)
    return replace(seconds, ep_comm=seconds.ep_comm + np.maximum(0.0, hidden - along))


def overlapped_with_shared(shapes: Shapes, part: Part, shared: Part, exchange: FloatColumn) -> Part:
    """Routed experts whose exchanges run beside the shared ones, in both passes.

    Forward the first product and its activation run beside the dispatch, the last product beside
    the combine; backward the same in turn. No more of an exchange hides than what runs beside it
    lasts, nor than beside any other compute. `exchange` are the seconds of one of the two.
    Source: Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, token_dispatch and token_combine, and
    `moe/shared_experts.py`, whose sequence numbers keep that order backward.
    """
    if not shapes.traits.experts.overlaps_shared:
        return part
    ups = 2 if shapes.job.model.gated_mlp else 1
    share = 1 - shapes.machine.constants.expert_overlap_exposed

    def left(routed: PassSeconds, own: PassSeconds) -> PassSeconds:
        products, half = own.gemm / (ups + 1), own.tp_comm / 2
        first = np.minimum(exchange, ups * products + own.elementwise + half)
        hidden = share * (first + np.minimum(exchange, products + half))
        return replace(routed, ep_comm=routed.ep_comm - hidden)

    forward, backward = left(part.forward, shared.forward), left(part.backward, shared.backward)
    return replace(part, forward=forward, backward=backward)
