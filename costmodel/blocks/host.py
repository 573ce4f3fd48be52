"""Time the GPU waits for the host to launch a layer."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.blocks.parts import Shapes
from trainplan.costmodel.columns import FloatColumn


@dataclass(frozen=True, slots=True)
class Launches:
    """Host time of one layer."""

    forward_seconds: FloatColumn
    backward_seconds: FloatColumn
    sync_seconds: float
    """Idle time of every forward pass whatever the GPU has to do; twice that backward."""

    def waiting_forward(self, busy: FloatColumn) -> FloatColumn:
        """Seconds a forward pass waits.

        Source: host and GPU work beside each other, so a pass takes the longer of both: the host's
        seconds beyond the busy ones are waiting, and synchronisation waits in any case.
        """
        return np.maximum(self.sync_seconds, self.forward_seconds - busy)

    def waiting_backward(self, busy: FloatColumn) -> FloatColumn:
        """Seconds a backward pass waits. Source: as `waiting_forward`."""
        return np.maximum(2 * self.sync_seconds, self.backward_seconds - busy)


def dense_launches(shapes: Shapes) -> Launches:
    """Host time of a dense layer: none where a graph holds the whole step."""
    constants, traits = shapes.machine.constants, shapes.traits
    if traits.host.cuda_graph == "full_iteration":
        return _none(shapes)
    by_host = {
        "fused": constants.host_dense,
        "legacy": constants.host_legacy,
        "fsdp": constants.host_fsdp,
    }
    collectives = np.where(shapes.table.tp > 1, constants.host_tp, 0.0)
    forward = shapes.machine.host_factor * (by_host[traits.host.layer] + collectives)
    return Launches(forward, forward * constants.host_backward_dense, 0.0)


def moe_launches(shapes: Shapes) -> Launches:
    """Host time of a mixture-of-experts layer; dropless dispatch also waits for its split sizes.

    What the GPU idles then grows with what the host still has to launch. An exchange beside compute
    takes a layer apart: each part has a stream, events and a run of autograd of its own. Shared
    experts are half of a dense layer.
    Source: Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, `no_sync` where all sizes are known;
    `models/common/model_chunk_schedule_plan.py`, TransformerLayerSchedulePlan.
    """
    constants, traits = shapes.machine.constants, shapes.traits
    if traits.host.cuda_graph == "full_iteration":
        return _none(shapes)
    partial, moe = traits.host.cuda_graph == "partial", shapes.job.model.moe
    layer = constants.host_moe_graph if partial else constants.host_moe
    split = constants.host_moe_beside if traits.experts.overlaps else 1.0
    shared = moe is not None and moe.shared_expert_intermediate_size
    layer += 0.5 * constants.host_dense if shared else 0.0
    launch = shapes.machine.host_factor * layer * split
    forward = np.full(shapes.size, launch)
    dropless = not shapes.job.options.moe_pad_to_capacity
    waits = dropless * constants.dispatch_sync_seconds * launch / constants.host_moe
    return Launches(forward, forward * constants.host_backward_moe, waits)


def layer_launches(shapes: Shapes) -> Launches:
    """Host time of a layer with both halves, or of the one it has: half of a dense layer's.

    Source: derived; either half of a dense layer launches as many projections, and norm, residual
    addition and a kernel between them. A layer of experts alone launches no mixer, which a graph
    has launched anyhow.
    """
    model = shapes.job.model
    if model.feed_forward == "none":
        return _scaled(dense_launches(shapes), 0.5)
    whole = (moe_launches if model.feed_forward == "moe" else dense_launches)(shapes)
    graphed = model.feed_forward == "moe" and shapes.traits.host.cuda_graph == "partial"
    if model.mixer != "none" or graphed:
        return whole
    if model.feed_forward == "mlp":
        return _scaled(whole, 0.5)
    half = _scaled(dense_launches(shapes), 0.5)
    return Launches(
        np.maximum(0.0, whole.forward_seconds - half.forward_seconds),
        np.maximum(0.0, whole.backward_seconds - half.backward_seconds),
        whole.sync_seconds,
    )


def _scaled(launches: Launches, share: float) -> Launches:
    return Launches(
        share * launches.forward_seconds, share * launches.backward_seconds, launches.sync_seconds
    )


def _none(shapes: Shapes) -> Launches:
    zero = np.zeros(shapes.size)
    return Launches(zero, zero, 0.0)
