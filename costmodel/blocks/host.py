"""Time the GPU waits for the host to launch a layer."""

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.blocks.parts import Module, Shapes
from trainplan.costmodel.columns import FloatColumn

LATENT = 0.4
"""Launches of both projections to the width of experts, over a dense layer. Source: derived; two of
the five modules of `host_dense`."""
RELAUNCHED = {
    "layernorm": (2, 0.1),
    "core_attn": (1, 0.2),
    "mla_up_proj": (1, 0.6),
    "mlp": (1, 0.5),
    "shared_experts": (1, 0.5),
    "moe": (1, 7.0),
}
"""Checkpoints of a recomputed module, and what it launches over a dense layer; others: one, and a
kernel or two.

Source: derived; of the five modules and ten kernels of `host_dense` two norms, the attention core,
two projections with a rotation, and both products of an MLP; `host_moe` without half of it.
"""


@dataclass(frozen=True, slots=True)
class Launches:
    """Host time of one layer."""

    forward_seconds: FloatColumn
    backward_seconds: FloatColumn
    sync_seconds: float
    """Idle time of every forward pass whatever the GPU has to do; twice that backward."""
    checkpoint_seconds: float = 0.0
    """Of one module that is recomputed by itself, beyond what it launches."""
    dense_seconds: float = 0.0
    """Forward pass of a dense layer."""

    def waiting_forward(self, busy: FloatColumn) -> FloatColumn:
        """Seconds a forward pass waits.

        Source: host and GPU work beside each other, so a pass takes the longer of both: the host's
        seconds beyond the busy ones are waiting, and synchronisation waits in any case.
        """
        return np.maximum(self.sync_seconds, self.forward_seconds - busy)

    def waiting_backward(self, busy: FloatColumn) -> FloatColumn:
        """Seconds a backward pass waits. Source: as `waiting_forward`."""
        return np.maximum(2 * self.sync_seconds, self.backward_seconds - busy)

    def ahead(self, busy: FloatColumn) -> FloatColumn:
        """Seconds by which the host ends a backward pass after the GPU could, negative before it.

        Source: derived from `waiting_backward`.
        """
        return np.asarray(self.backward_seconds - busy - 2 * self.sync_seconds)

    def launching(self, module: Module) -> Module:
        """A module with what the host takes to launch it again where it is recomputed."""
        checkpoints, share = RELAUNCHED.get(module.name, (1, 0.0))
        launched = checkpoints * self.checkpoint_seconds + share * self.dense_seconds
        there = np.where(module.seconds > 0, launched, 0.0)
        return replace(module, launch_seconds=there)


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
    return _launches(shapes, forward, forward * constants.host_backward_dense, 0.0)


def moe_launches(shapes: Shapes) -> Launches:
    """Host time of a mixture-of-experts layer; dropless dispatch also waits for its split sizes.

    What the GPU idles then grows with what the host launches after the wait, none of it from a
    graph: those hold what comes before. An exchange beside compute takes a layer apart: each part
    has a stream, events and a run of autograd of its own, and what that takes is the release's.
    Shared experts are half of a dense layer, with its collectives; each chunk of the tokens after
    the first is launched as experts are that run again.
    Source: Megatron-LM @d98e8a64 `moe/token_dispatcher.py`, `no_sync` where all sizes are known;
    `models/common/model_chunk_schedule_plan.py`, TransformerLayerSchedulePlan.
    """
    constants, traits = shapes.machine.constants, shapes.traits
    if traits.host.cuda_graph == "full_iteration":
        return _none(shapes)
    partial, release = traits.host.cuda_graph == "partial", traits.host.release
    moe = shapes.job.model.moe
    assert moe is not None
    shared = bool(moe.shared_expert_intermediate_size)
    chunks = (traits.experts.chunks - 1) * RELAUNCHED["moe"][1]
    more = (0.5 * shared + LATENT * bool(moe.latent_size) + chunks) * constants.host_dense
    parallel = np.where(shapes.table.tp > 1, constants.host_tp, 0.0)
    pace = shapes.machine.host_factor * release.experts
    pace *= release.overlapped if traits.experts.overlaps else 1.0
    first = constants.host_moe_graph if partial else constants.host_moe
    forward = pace * (first + more + parallel * (shared + (not partial)))
    dropless = not shapes.job.options.moe_pad_to_capacity
    waits = dropless * constants.dispatch_sync_seconds * pace * (1 + more / constants.host_moe)
    return _launches(shapes, forward, forward * constants.host_backward_moe, waits)


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
    return replace(
        whole,
        forward_seconds=np.maximum(0.0, whole.forward_seconds - half.forward_seconds),
        backward_seconds=np.maximum(0.0, whole.backward_seconds - half.backward_seconds),
    )


def _launches(
    shapes: Shapes, forward: FloatColumn, backward: FloatColumn, sync_seconds: float
) -> Launches:
    """With what recomputation launches, where modules of layers are checkpointed from Python."""
    factor, constants = shapes.machine.host_factor, shapes.machine.constants
    again = factor * constants.host_checkpoint
    return Launches(forward, backward, sync_seconds, again, factor * constants.host_dense)


def _scaled(launches: Launches, share: float) -> Launches:
    return replace(
        launches,
        forward_seconds=share * launches.forward_seconds,
        backward_seconds=share * launches.backward_seconds,
    )


def _none(shapes: Shapes) -> Launches:
    zero = np.zeros(shapes.size)
    return Launches(zero, zero, 0.0)
