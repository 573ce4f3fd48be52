"""PipeOffload: activations of a pipeline stage off the GPU between its two passes."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.lanes.habits import megatron_habits
from trainplan.costmodel.lanes.loads import FloatColumn, Lane, Order
from trainplan.costmodel.lanes.methods.method import Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Column, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Item, Part, Work


def round_trip_ratio(out_and_back: Column, forward: Column, backward: Column) -> FloatColumn:
    """k: seconds of a stage's activations out and back over those of its two passes.

    Source: Wan et al., PipeOffload, arXiv:2503.01328, k = T_o / (T_F + T_B).
    """
    return np.asarray(out_and_back / (np.asarray(forward) + backward))


def free_share(ratio: FloatColumn) -> FloatColumn:
    """Largest share of activations whose copies hide: all if k <= 1, half if k <= 2.

    Source: Wan et al., PipeOffload, arXiv:2503.01328: in steady state one forward and
    one backward pass leave T_F + T_B for the copies of one micro batch.
    """
    return np.minimum(1.0, 1.0 / ratio)


def steady_stage(
    forward: FloatColumn, backward: FloatColumn, one_way: FloatColumn, rounds: int
) -> Work:
    """A stage in the steady state of a pipeline whose copies share one lane, `rounds` long.

    In each round a forward pass whose activations leave, and the backward pass of an earlier micro
    batch whose activations have come back in the round before.
    """
    items = (
        Item("back", Lane.H2D, one_way, ("backward",)),
        Item("forward", Lane.GPU, forward),
        Item("out", Lane.H2D, one_way, ("forward",)),
        Item("backward", Lane.GPU, backward, ("came back",)),
        Item("came back", Lane.CPU, 0.0, ("back",)),
    )
    return Work((Part(items, Order.BESIDE, rounds),), len(forward))


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """The placement's share of activations on the host, all if it says none."""
    share = placement.checkpoints if np.any(placement.checkpoints) else 1.0
    return step_work(
        quantities, speeds, Placement(checkpoints=share), megatron_habits(overlap=False)
    )


METHOD = Method(
    name="pipeoffload",
    what="activations of the stages that hold them longest on the host between their two passes",
    source="Wan et al., PipeOffload, arXiv:2503.01328",
    work=_work,
    runtime="Megatron-LM --fine-grained-activation-offloading",
)
