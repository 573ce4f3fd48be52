"""ProTrain: how many blocks stay, are buffered, swapped and computed again, by trying all."""

from __future__ import annotations

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3)


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """Weights and optimizer on the host, activations as placed."""
    placed = Placement(optimizer=1.0, parameters=Place.HOST, checkpoints=placement.checkpoints)
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="protrain",
    what="numbers of blocks that stay, are buffered, swapped and computed again: the best of all",
    source="Yang et al., ProTrain, arXiv:2406.08334",
    work=_work,
    keeps=(
        Kept(Place.HOST, "weights in 16 bits", 2.0),
        Kept(Place.HOST, "gradients in 16 bits", 2.0),
        Kept(Place.HOST, "weights in 32 bits", 4.0),
        Kept(Place.HOST, "moments", 8.0),
    ),
)
